package egress

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

// FuzzEmbeddedAddress writes addresses of IPv4 into each of the networks
// of IPv6 that hold one: what is not reached as it is, is not reached so either.
func FuzzEmbeddedAddress(f *testing.F) {
	for _, address := range []string{"127.0.0.1", "10.0.0.1", "169.254.169.254", "93.184.215.14", "0.0.0.0", "224.0.0.1", "100.64.0.1", "168.63.129.16"} {
		f.Add(binary.BigEndian.Uint32(netip.MustParseAddr(address).AsSlice()), uint64(1))
	}
	f.Fuzz(func(t *testing.T, number uint32, rest uint64) {
		address := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, number)))
		for _, r := range []rules{{}, {private: true}} {
			bare := r.check(t.Context(), address) == nil
			for name, holding := range holders(number, rest) {
				if got := r.check(t.Context(), holding) == nil; got && !bare {
					t.Errorf("%s is reached as %s (%s), and not as it is", address, holding, name)
				}
			}
		}
	})
}

// holders are the addresses that hold one, by what they are for.
func holders(number uint32, rest uint64) map[string]netip.Addr {
	write := func(prefix string, at int, value uint32) netip.Addr {
		bytes := netip.MustParseAddr(prefix).As16()
		if at == 2 {
			binary.BigEndian.PutUint64(bytes[8:], rest)
		}
		binary.BigEndian.PutUint32(bytes[at:], value)
		return netip.AddrFrom16(bytes)
	}
	all := map[string]netip.Addr{
		"mapped": write("::ffff:0:0", 12, number), "translated": write("::ffff:0:0:0", 12, number), "NAT64": write("64:ff9b::", 12, number),
		"6to4": write("2002::", 2, number), "Teredo's client": write("2001:0:5db8:d70e::", 12, ^number), "Teredo's server": write("2001::a247:28f1", 4, number),
		"ISATAP": write("2606:2800::5efe:0:0", 12, number),
	}
	if number > 1 { // or it would be :: or ::1
		all["compatible"] = write("::", 12, number)
	}
	return all
}
