package egress

import (
	"context"
	"errors"
	"net/netip"
	"testing"
)

func TestRules(t *testing.T) {
	prefixes := func(s ...string) []netip.Prefix {
		var p []netip.Prefix
		for _, one := range s {
			p = append(p, netip.MustParsePrefix(one))
		}
		return p
	}
	public, private := rules{}, rules{private: true}
	configured := rules{
		allow: prefixes("10.1.0.0/16", "169.254.0.0/16", "fd00:1::/32"),
		deny:  prefixes("203.0.113.0/24", "10.1.9.0/24"),
		isInternal: func(context.Context) ([]netip.Prefix, error) {
			return prefixes("198.51.100.0/24", "2001:db8:1::/48"), nil
		},
	}
	unsure := rules{
		allow:      prefixes("10.1.0.0/16"),
		isInternal: func(context.Context) ([]netip.Prefix, error) { return nil, errors.New("no answer") },
	}
	for _, c := range []struct {
		claim   string
		rules   rules
		address string
		refused bool
	}{
		{"a public address is reached", public, "93.184.215.14", false},
		{"a public address of IPv6 is reached", public, "2606:2800:21f::1", false},
		{"loopback is not", public, "127.0.0.1", true},
		{"nor of IPv6", public, "::1", true},
		{"nor as one of IPv6 that holds it", public, "::ffff:127.0.0.1", true},
		{"nor through NAT64", public, "64:ff9b::7f00:1", true},
		{"nor through 6to4", public, "2002:7f00:1::", true},
		{"nor as one compatible with IPv4", public, "::127.0.0.1", true},
		{"nor as one translated from IPv4", public, "::ffff:0:127.0.0.1", true},
		{"nor through a site's NAT64", public, "64:ff9b:1::7f00:1", true},
		{"nor through Teredo, whose client is inverted", public, "2001:0:5db8:d70e::80ff:fffe", true},
		{"nor through a private server of Teredo", public, "2001:0:a00:1::a247:28f1", true},
		{"nor through ISATAP", public, "2606:2800:21f::5efe:10.0.0.1", true},
		{"nor through ISATAP with a global address", public, "2606:2800:21f::200:5efe:10.0.0.1", true},
		{"a public address is reached through NAT64", public, "64:ff9b::93.184.215.14", false},
		{"and as one compatible with IPv4", public, "::93.184.215.14", false},
		{"and through 6to4", public, "2002:5db8:d70e::1", false},
		{"and through Teredo", public, "2001:0:5db8:d70e::a247:28f1", false},
		{"a private address is not", public, "10.0.0.1", true},
		{"nor another", public, "172.16.5.4", true},
		{"nor another", public, "192.168.1.1", true},
		{"nor one of IPv6", public, "fd12:3456::1", true},
		{"nor behind a carrier", public, "100.64.0.1", true},
		{"nor one kept for tests", public, "198.18.0.1", true},
		{"nor one kept for later", public, "240.0.0.1", true},
		{"nor this network", public, "0.1.2.3", true},
		{"nor this network in IPv6", public, "::0.1.2.3", true},
		{"nor everybody", public, "255.255.255.255", true},
		{"nor a relay of 6to4", public, "192.88.99.1", true},
		{"nor one kept for protocols", public, "192.0.0.8", true},
		{"nor a private address translated", public, "::ffff:0:10.0.0.1", true},
		{"nor a private address through NAT64", public, "64:ff9b::10.0.0.1", true},
		{"nor a private address through 6to4", public, "2002:c0a8:101::1", true},
		{"nor what is discarded", public, "100::1", true},
		{"nor one for benchmarks", public, "2001:2::1", true},
		{"nor a segment of routing", public, "5f00::1", true},
		{"nor of a site", public, "fec0::1", true},

		{"a source that may be private reaches loopback", private, "127.0.0.1", false},
		{"and private addresses", private, "10.0.0.1", false},
		{"and those of IPv6", private, "fd12:3456::1", false},
		{"but no metadata", private, "169.254.169.254", true},
		{"nor written as IPv6", private, "::ffff:169.254.169.254", true},
		{"nor through NAT64", private, "64:ff9b::a9fe:a9fe", true},
		{"nor through 6to4", private, "2002:a9fe:a9fe::1", true},
		{"nor compatible with IPv4", private, "::169.254.169.254", true},
		{"nor translated", private, "::ffff:0:169.254.169.254", true},
		{"nor through a site's NAT64", private, "64:ff9b:1::a9fe:a9fe", true},
		{"nor through a site's NAT64 of 48 bits", private, "64:ff9b:1:a9fe:a9:fe00::", true},
		{"nor through a site's NAT64 of 64 bits", private, "64:ff9b:1:0:a9:fea9:fe00:0", true},
		{"nor through Teredo", private, "2001:0:5db8:d70e::5601:5601", true},
		{"nor through ISATAP", private, "fd00::5efe:169.254.169.254", true},
		{"a site's NAT64 leads to other addresses", private, "64:ff9b:1::a00:1", false},
		{"nor link-local", private, "fe80::1", true},
		{"nor with a zone", private, "fe80::1%eth0", true},
		{"nor AWS's own of IPv6", private, "fd00:ec2::254", true},
		{"nor Alibaba's", private, "100.100.100.200", true},
		{"nor Azure's, which looks public", private, "168.63.129.16", true},
		{"nor nowhere", private, "0.0.0.0", true},
		{"nor nowhere of IPv6", private, "::", true},
		{"nor many at once", private, "224.0.0.1", true},

		{"a network that is allowed is reached", configured, "10.1.2.3", false},
		{"and of IPv6", configured, "fd00:1::5", false},
		{"but not one that is refused", configured, "10.1.9.3", true},
		{"nor one that looks public", configured, "203.0.113.9", true},
		{"and metadata can't be allowed", configured, "169.254.169.254", true},
		{"a network inside is private although it looks public", configured, "198.51.100.7", true},
		{"and in IPv6", configured, "2001:db8:1::7", true},
		{"and through NAT64", configured, "64:ff9b::198.51.100.7", true},
		{"one beside it is as private as before", configured, "10.2.0.1", true},
		{"what is allowed is reached as it is translated", configured, "64:ff9b::10.1.2.3", false},
		{"that translation is allowed allows no addresses in it", rules{allow: prefixes("64:ff9b::/96", "2002::/16")}, "64:ff9b::10.0.0.1", true},

		{"nothing public is reached where the cluster's networks are not known", unsure, "93.184.215.14", true},
		{"but what is allowed", unsure, "10.1.2.3", false},
	} {
		t.Run(c.claim+" "+c.address, func(t *testing.T) {
			err := c.rules.check(t.Context(), netip.MustParseAddr(c.address))
			if (err != nil) != c.refused {
				t.Errorf("got %v", err)
			}
		})
	}
}
