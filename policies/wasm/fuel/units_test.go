package fuel_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// BenchmarkUnits measures how long a unit takes of what is dear: the costs are
// fair when none stands far above the others.
func BenchmarkUnits(b *testing.B) {
	const units = 5_000_000
	zero := []byte{0x41, 0}
	n := func(n int32) []byte { return i32const(n) }
	for name, body := range map[string][]byte{
		"add":                {0x20, 0, 0x41, 1, 0x6a, 0x21, 0},
		"i32.div":            {0x20, 0, 0x20, 0, 0x41, 1, 0x72, 0x6d, 0x21, 0},
		"i64.rem":            {0x20, 1, 0x20, 1, 0x42, 1, 0x84, 0x82, 0x21, 1},
		"f64.sqrt":           {0x20, 2, 0x9f, 0x21, 2},
		"load":               {0x20, 0, 0x41, 0xff, 3, 0x71, 0x28, 2, 0, 0x21, 0},
		"call":               {0x10, 1},
		"call_indirect":      {0x41, 0, 0x11, 0, 0},
		"ref.func":           {0xd2, 1, 0x1a},
		"memory.grow by 0":   {0x41, 0, 0x40, 0, 0x1a},
		"table.grow by 0":    {0xd0, 0x70, 0x41, 0, 0xfc, 15, 0, 0x1a},
		"memory.fill by 0":   {0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 11, 0},
		"memory.copy by 0":   {0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 10, 0, 0},
		"memory.fill by 1M":  join(zero, zero, n(1<<20), []byte{0xfc, 11, 0}),
		"memory.copy by 1M":  join(zero, n(1<<20), n(1<<20), []byte{0xfc, 10, 0, 0}),
		"table.copy by 1000": join(zero, zero, n(1000), []byte{0xfc, 14, 0, 0}),
		"table.fill by 1000": join(zero, []byte{0xd0, 0x70}, n(1000), []byte{0xfc, 17, 0}),
	} {
		a := assembly{
			types: [][]byte{typeVoid}, tables: [][]byte{{0x70, 0, 0x80, 8}}, memories: [][]byte{{0, 32}},
			elements: [][]byte{{0, 0x41, 0, 0x0b, 1, 1}},
		}
		code := join([]byte{0x03, 0x40}, slices.Repeat(body, 50), []byte{0x0c, 0, 0x0b})
		a.function("run", 0, []byte{3, 1, 0x7f, 1, 0x7e, 1, 0x7c}, code...)
		a.function("leaf", 0, noLocals, 0x41, 1, 0x41, 2, 0x6a, 0x1a)
		b.Run(name, func(b *testing.B) {
			g := instantiate(b, newRuntime(b), a.bytes(), fuel.Options{})
			for b.Loop() {
				if _, _, err := g.spend(b, units, "run"); g.left() >= 0 {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/units, "ns/unit")
		})
	}
}

// BenchmarkRandomLoads measures what a unit takes at the most: loads each of which
// has to wait for the one before it, from anywhere in a memory.
func BenchmarkRandomLoads(b *testing.B) {
	const units = 1_000_000
	for _, pages := range []uint32{16, 64, 256, 1024, 8192} {
		b.Run(fmt.Sprintf("%d MiB", pages>>4), func(b *testing.B) {
			a := assembly{types: [][]byte{typeVoid}, memories: [][]byte{join([]byte{0}, number(pages))}}
			a.exports = append(a.exports, join(text("memory"), []byte{2, 0}))
			chain := join([]byte{0x20, 0}, slices.Repeat([]byte{0x28, 2, 0}, 50), []byte{0x21, 0})
			a.function("run", 0, []byte{1, 1, 0x7f}, join([]byte{0x03, 0x40}, chain, []byte{0x0c, 0, 0x0b})...)
			g := instantiate(b, newRuntime(b), a.bytes(), fuel.Options{})
			// Each address holds the next: all of them in one cycle.
			const step = 64 // bytes, of which the processor fetches no less
			n := pages << 16 / step
			order := rand.New(rand.NewPCG(1, 1)).Perm(int(n))
			for i, at := range order {
				g.Memory().WriteUint32Le(uint32(at)*step, uint32(order[(i+1)%int(n)])*step)
			}
			for b.Loop() {
				if _, _, err := g.spend(b, units, "run"); g.left() >= 0 {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/units, "ns/unit")
		})
	}
}
