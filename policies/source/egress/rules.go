package egress

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
)

// metadata are addresses at which cloud providers serve credentials to machines, in
// addition to link-local ones.
var metadata = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("168.63.129.16"),   // Azure, a public address
	netip.MustParseAddr("192.0.0.192"),     // Oracle
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd20:ce::254"),    // Google
}

// reserved are networks that are not part of the public internet, in addition to
// those that package netip treats as private: IANA lists them as not globally
// reachable. Documentation networks are omitted, since nothing uses them.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"), // carrier-grade NAT, and the pods of some clouds
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"), // relays of 6to4
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("64:ff9b:1::/48"), // local-use translation
	netip.MustParsePrefix("100::/64"),       // discarded
	netip.MustParsePrefix("2001:2::/48"),    // for benchmarks
	netip.MustParsePrefix("5f00::/16"),      // segment routing
	netip.MustParsePrefix("fec0::/10"),
}

// IPv6 networks whose addresses contain the IPv4 address that packets are sent to.
var (
	compatible = netip.MustParsePrefix("::/96")
	translated = netip.MustParsePrefix("::ffff:0:0:0/96")
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")
	sixToFour  = netip.MustParsePrefix("2002::/16")
	teredo     = netip.MustParsePrefix("2001::/32")
)

// rules define which addresses may be reached.
type rules struct {
	private     bool
	allow, deny []netip.Prefix
	isInternal  func(context.Context) ([]netip.Prefix, error)
	remedy      string
}

// defaultRemedy is for users who cannot change the rules.
const defaultRemedy = "a resource in a namespace reaches public addresses only, and those that the operator is configured to allow"

// check returns an error for an address that must not be reached. The error is a
// *Refusal, unless it is not known whether the address belongs to the cluster.
func (r rules) check(ctx context.Context, address netip.Addr) error {
	address = address.Unmap().WithZone("")
	ends := endpoints(address)
	if neverAllowed(address) {
		return denied("the address %s is link-local or a cloud metadata address, which is never reached", address)
	}
	if containedIn(r.deny, address) || slices.ContainsFunc(ends, func(a netip.Addr) bool { return containedIn(r.deny, a) }) {
		return denied("the address %s is in a network that the operator is configured not to reach", address)
	}
	if r.private || !slices.ContainsFunc(ends, func(a netip.Addr) bool { return !containedIn(r.allow, a) }) {
		return nil
	}
	private := slices.ContainsFunc(ends, func(a netip.Addr) bool { return isPrivate(a) && !containedIn(r.allow, a) })
	if !private && r.isInternal != nil {
		inside, err := r.isInternal(ctx)
		if err != nil {
			return &undeterminedError{address, err}
		}
		private = containedIn(inside, address) || slices.ContainsFunc(ends, func(a netip.Addr) bool { return containedIn(inside, a) && !containedIn(r.allow, a) })
	}
	if private {
		return denied("the address %s is private; %s", address, r.advice())
	}
	return nil
}

// undeterminedError is an address of which it is not known whether it belongs to the
// cluster. The cause is for the operator's log only.
type undeterminedError struct {
	address netip.Addr
	cause   error
}

func (u *undeterminedError) Error() string {
	return fmt.Sprintf("it is not known yet whether %s is an address of the cluster", u.address)
}

// advice returns what to do about an address that must not be reached.
func (r rules) advice() string { return cmp.Or(r.remedy, defaultRemedy) }

// endpoints returns the addresses that a packet may be sent to: the IPv4 address
// within an IPv6 address, or the address itself. All of them are checked.
func endpoints(address netip.Addr) []netip.Addr {
	address = address.Unmap().WithZone("")
	if address.Is4() {
		return []netip.Addr{address}
	}
	bytes := address.As16()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(bytes[i : i+4])) }
	switch {
	case address.IsUnspecified(), address.IsLoopback():
		return []netip.Addr{address}
	case compatible.Contains(address), translated.Contains(address), nat64.Contains(address):
		return []netip.Addr{at(12)}
	case sixToFour.Contains(address):
		return []netip.Addr{at(2)}
	case teredo.Contains(address):
		client := at(12).As4()
		for i := range client {
			client[i] ^= 0xff
		}
		return []netip.Addr{at(4), netip.AddrFrom4(client)}
	case isISATAP(bytes):
		return []netip.Addr{address, at(12)}
	}
	return []netip.Addr{address}
}

// isISATAP reports whether the second half of an address is that of an ISATAP
// tunnel to an IPv4 host.
func isISATAP(bytes [16]byte) bool {
	return bytes[8]&^2 == 0 && bytes[9] == 0 && bytes[10] == 0x5e && bytes[11] == 0xfe
}

// translations returns the IPv4 addresses to which a site's own NAT64 could
// translate an address, by the length of its prefix (RFC 6052, 2.2).
func translations(address netip.Addr) []netip.Addr {
	if !localNAT64.Contains(address) {
		return nil
	}
	b := address.As16()
	return []netip.Addr{
		netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]}),
		netip.AddrFrom4([4]byte{b[7], b[9], b[10], b[11]}),
		netip.AddrFrom4([4]byte{b[9], b[10], b[11], b[12]}),
		netip.AddrFrom4([4]byte{b[12], b[13], b[14], b[15]}),
	}
}

// NeverAllowed reports whether no configuration allows this address.
func NeverAllowed(address netip.Addr) bool { return neverAllowed(address) }

func neverAllowed(address netip.Addr) bool {
	return slices.ContainsFunc(endpoints(address), func(a netip.Addr) bool {
		return isMetadata(a) || a.IsMulticast() || a.IsUnspecified()
	}) || slices.ContainsFunc(translations(address), isMetadata)
}

func isMetadata(address netip.Addr) bool {
	return address.IsLinkLocalUnicast() || slices.Contains(metadata, address)
}

func isPrivate(address netip.Addr) bool {
	return address.IsPrivate() || address.IsLoopback() || containedIn(reserved, address)
}

func containedIn(networks []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(address) })
}

func onlyLoopback(_ context.Context, address netip.Addr) error {
	if !address.Unmap().IsLoopback() {
		return denied("the address %s needs HTTPS: plain HTTP is for loopback addresses only", address)
	}
	return nil
}
