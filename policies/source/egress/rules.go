package egress

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
)

// metadata are addresses at which clouds serve credentials to their machines,
// beyond those that are link-local.
var metadata = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("168.63.129.16"),   // Azure, and it looks public
	netip.MustParseAddr("192.0.0.192"),     // Oracle
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd20:ce::254"),    // Google
}

// reserved are networks that are not of the public internet, beyond those that
// package netip knows as private: IANA lists them as not globally reachable.
// Networks for documentation are left out, since nothing is there.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"), // behind a carrier's address translation, and the pods of some clouds
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"), // relays of 6to4
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("64:ff9b:1::/48"), // translation to whatever a site likes
	netip.MustParsePrefix("100::/64"),       // discarded
	netip.MustParsePrefix("2001:2::/48"),    // for benchmarks
	netip.MustParsePrefix("5f00::/16"),      // segments of a site's own routing
	netip.MustParsePrefix("fec0::/10"),
}

// Networks whose addresses hold one of IPv4, which is where a packet ends up.
var (
	compatible = netip.MustParsePrefix("::/96")
	translated = netip.MustParsePrefix("::ffff:0:0:0/96")
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")
	sixToFour  = netip.MustParsePrefix("2002::/16")
	teredo     = netip.MustParsePrefix("2001::/32")
)

// rules say which addresses may be reached.
type rules struct {
	private       bool
	allow, refuse []netip.Prefix
	inside        func(context.Context) ([]netip.Prefix, error)
	remedy        string
}

// defaultRemedy is for those who may not say themselves what is reached.
const defaultRemedy = "a resource in a namespace reaches public addresses only, and those that the operator is told to allow"

// check refuses an address that must not be reached. The error is a *Refusal,
// unless it could not be found out whether the address is one of the cluster's.
func (r rules) check(ctx context.Context, address netip.Addr) error {
	address = address.Unmap().WithZone("")
	ends := endpoints(address)
	if neverReached(address) {
		return refuse("the address %s is of the machine's own network or of a cloud's metadata, and is never reached", address)
	}
	if within(r.refuse, address) || slices.ContainsFunc(ends, func(a netip.Addr) bool { return within(r.refuse, a) }) {
		return refuse("the address %s is of a network that the operator is told not to reach", address)
	}
	if r.private || !slices.ContainsFunc(ends, func(a netip.Addr) bool { return !within(r.allow, a) }) {
		return nil
	}
	private := slices.ContainsFunc(ends, func(a netip.Addr) bool { return isPrivate(a) && !within(r.allow, a) })
	if !private && r.inside != nil {
		inside, err := r.inside(ctx)
		if err != nil {
			return &undetermined{address, err}
		}
		private = within(inside, address) || slices.ContainsFunc(ends, func(a netip.Addr) bool { return within(inside, a) && !within(r.allow, a) })
	}
	if private {
		return refuse("the address %s is private; %s", address, r.advice())
	}
	return nil
}

// undetermined is an address of which it could not be found out whether it is one of
// the cluster's. The cause is for the operator's log alone.
type undetermined struct {
	address netip.Addr
	cause   error
}

func (u *undetermined) Error() string {
	return fmt.Sprintf("whether %s is an address of the cluster is not known yet", u.address)
}

// advice is what to do about an address that may not be reached.
func (r rules) advice() string { return cmp.Or(r.remedy, defaultRemedy) }

// endpoints are the addresses at which a packet may end up: that of IPv4 which one
// of IPv6 holds, or the address itself. All of them count.
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

// isISATAP reports whether the second half of an address is one that tunnels to a
// machine of IPv4 within a site.
func isISATAP(bytes [16]byte) bool {
	return bytes[8]&^2 == 0 && bytes[9] == 0 && bytes[10] == 0x5e && bytes[11] == 0xfe
}

// translations are what a site's own NAT64 could make of an address, by the length
// of its prefix (RFC 6052, 2.2).
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

// Never tells whether no configuration lets this address be reached.
func Never(address netip.Addr) bool { return neverReached(address) }

func neverReached(address netip.Addr) bool {
	return slices.ContainsFunc(endpoints(address), func(a netip.Addr) bool {
		return isMetadata(a) || a.IsMulticast() || a.IsUnspecified()
	}) || slices.ContainsFunc(translations(address), isMetadata)
}

func isMetadata(address netip.Addr) bool {
	return address.IsLinkLocalUnicast() || slices.Contains(metadata, address)
}

func isPrivate(address netip.Addr) bool {
	return address.IsPrivate() || address.IsLoopback() || within(reserved, address)
}

func within(networks []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(address) })
}

func onlyLoopback(_ context.Context, address netip.Addr) error {
	if !address.Unmap().IsLoopback() {
		return refuse("the address %s is not reached by HTTPS, and plain HTTP is for loopback addresses only", address)
	}
	return nil
}
