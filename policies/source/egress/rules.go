package egress

import (
	"cmp"
	"net/netip"
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
// package netip knows as private.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"), // behind a carrier's address translation, and the pods of some clouds
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("64:ff9b:1::/48"), // translation to whatever a site likes
	netip.MustParsePrefix("fec0::/10"),
}

// Networks whose addresses hold one of IPv4, which is where a packet ends up.
var (
	nat64   = netip.MustParsePrefix("64:ff9b::/96")
	sixToV4 = netip.MustParsePrefix("2002::/16")
)

// rules say which addresses may be reached.
type rules struct {
	private               bool
	allow, refuse, inside []netip.Prefix
	remedy                string
}

// defaultRemedy is for those who may not say themselves what is reached.
const defaultRemedy = "a resource in a namespace reaches public addresses only, and those that the operator is told to allow"

// check refuses an address that must not be reached. The error is a *Refusal.
func (r rules) check(address netip.Addr) error {
	address = inner(address)
	if neverReached(address) {
		return refuse("the address %s is of the machine's own network or of a cloud's metadata, and is never reached", address)
	}
	if within(r.refuse, address) {
		return refuse("the address %s is of a network that the operator is told not to reach", address)
	}
	if r.private || within(r.allow, address) || !isPrivate(address) && !within(r.inside, address) {
		return nil
	}
	return refuse("the address %s is private; %s", address, cmp.Or(r.remedy, defaultRemedy))
}

// inner is the address of IPv4 that one of IPv6 stands for, or the address itself.
func inner(address netip.Addr) netip.Addr {
	address = address.Unmap().WithZone("")
	bytes := address.As16()
	switch {
	case nat64.Contains(address):
		return netip.AddrFrom4([4]byte(bytes[12:]))
	case sixToV4.Contains(address):
		return netip.AddrFrom4([4]byte(bytes[2:6]))
	}
	return address
}

// Never tells whether no configuration lets this address be reached.
func Never(address netip.Addr) bool { return neverReached(inner(address)) }

func neverReached(address netip.Addr) bool {
	if address.IsLinkLocalUnicast() || address.IsMulticast() || address.IsUnspecified() {
		return true
	}
	for _, m := range metadata {
		if address == m {
			return true
		}
	}
	return false
}

func isPrivate(address netip.Addr) bool {
	return address.IsPrivate() || address.IsLoopback() || within(reserved, address)
}

func within(networks []netip.Prefix, address netip.Addr) bool {
	for _, n := range networks {
		if n.Contains(address) {
			return true
		}
	}
	return false
}

func onlyLoopback(address netip.Addr) error {
	if !address.Unmap().IsLoopback() {
		return refuse("the address %s is not reached by HTTPS, and plain HTTP is for loopback addresses only", address)
	}
	return nil
}
