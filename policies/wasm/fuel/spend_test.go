package fuel_test

import (
	"math"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// TestEndlessModulesEnd holds that whatever a module does without end uses up
// its fuel, however much there is, and cannot be taken for its own trap.
func TestEndlessModulesEnd(t *testing.T) {
	recursion := assembly{types: [][]byte{typeVoid}}
	recursion.function("run", 0, noLocals, 0x10, 0)

	indirect := assembly{types: [][]byte{typeVoid}, tables: [][]byte{{0x70, 0, 1}}}
	indirect.function("run", 0, noLocals, 0x41, 0, 0x11, 0, 0)
	indirect.elements = [][]byte{{0, 0x41, 0, 0x0b, 1, 0}}

	leaf := assembly{types: [][]byte{typeVoid}}
	leaf.function("run", 0, noLocals, 0x03, 0x40, 0x10, 1, 0x0c, 0, 0x0b)
	leaf.function("", 0, noLocals)

	nested := assembly{types: [][]byte{typeVoid}}
	nested.function("run", 0, noLocals, 0x03, 0x40, 0x03, 0x40, 0x41, 1, 0x0d, 0, 0x0c, 1, 0x0b, 0x0b)

	table := assembly{types: [][]byte{typeVoid}}
	table.function("run", 0, noLocals, 0x03, 0x40, 0x41, 0, 0x0e, 1, 0, 0, 0x0b)

	afterBlock := assembly{types: [][]byte{typeVoid}}
	afterBlock.function("run", 0, noLocals, 0x03, 0x40, 0x02, 0x40, 0x0c, 0, 0x0b, 0x0c, 0, 0x0b)

	for name, a := range map[string]assembly{
		"a loop":                          endless(),
		"a recursion":                     recursion,
		"a recursion over a table":        indirect,
		"a loop that calls a leaf":        leaf,
		"a loop in a loop":                nested,
		"a loop by a branch table":        table,
		"a loop behind a jump":            afterBlock,
		"a start function that won't end": func() assembly { a := endless(); a.start = [][]byte{{0}}; return a }(),
	} {
		t.Run(name, func(t *testing.T) {
			g := instantiate(t, newRuntime(t), a.bytes(), fuel.Options{})
			function := "run"
			if g.rewritten.Start != "" {
				function = g.rewritten.Start
			}
			for _, units := range []int64{0, 1, 10_000, 1_000_000} {
				_, _, err := g.spend(t, units, function)
				if err == nil || !strings.Contains(err.Error(), "unreachable") || g.left() >= 0 {
					t.Errorf("with %d units it ended with %v, and %d were left", units, err, g.left())
				}
			}
		})
	}
}

func TestOwnTrapLeavesFuel(t *testing.T) {
	a := assembly{types: [][]byte{typeVoid}}
	a.function("run", 0, noLocals, 0x00)
	g := instantiate(t, newRuntime(t), a.bytes(), fuel.Options{})

	_, _, err := g.spend(t, 100, "run")

	if err == nil || g.left() < 0 {
		t.Errorf("it ended with %v, and %d units were left; want a trap, and no fewer than 0", err, g.left())
	}
}

// TestSizesArePaid holds that what an operand says how much is to be done is
// paid for before it is done, whatever the operand.
func TestSizesArePaid(t *testing.T) {
	const passive, half = 1, 0x8000
	a := assembly{
		types: [][]byte{typeUnary}, tables: [][]byte{{0x70, 0, 0x80, 0x80, 2}}, memories: [][]byte{{0, 1}},
		elements:  [][]byte{join([]byte{1, 0}, list(make([][]byte, 0)...))},
		dataCount: [][]byte{{1}}, data: [][]byte{join([]byte{passive}, sized(make([]byte, half)))},
	}
	n := []byte{0x20, 0}
	zero := []byte{0x41, 0}
	null := []byte{0xd0, 0x70}
	done := []byte{0x41, 0}
	for name, code := range map[string][]byte{
		"memory.init": join(zero, zero, n, []byte{0xfc, 8, 0, 0}, done),
		"memory.copy": join(zero, zero, n, []byte{0xfc, 10, 0, 0}, done),
		"memory.fill": join(zero, zero, n, []byte{0xfc, 11, 0}, done),
		"memory.grow": join(n, []byte{0x40, 0}),
		"table.init":  join(zero, zero, n, []byte{0xfc, 12, 0, 0}, done),
		"table.copy":  join(zero, zero, n, []byte{0xfc, 14, 0, 0}, done),
		"table.grow":  join(null, n, []byte{0xfc, 15, 0}),
		"table.fill":  join(zero, null, n, []byte{0xfc, 17, 0}, done),
	} {
		a.function(name, 0, noLocals, code...)
	}
	for _, c := range []struct {
		name    string
		operand uint32
		least   int64
	}{
		{"memory.init", half, half / 8}, {"memory.copy", half, half / 8}, {"memory.fill", half, half / 8},
		{"memory.grow", 3, 3 * 8192},
		{"table.copy", half, half}, {"table.grow", half, half}, {"table.fill", half, half},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := instantiate(t, newRuntime(t), a.bytes(), fuel.Options{})
			_, used, err := g.spend(t, ampleFuel, c.name, uint64(c.operand))
			if err != nil || used < c.least || used > c.least+300 {
				t.Errorf("with operand %d it used %d units, want %d and a little (error: %v)", c.operand, used, c.least, err)
			}
		})
	}
	for _, e := range a.exports {
		name := string(e[1 : 1+e[0]])
		t.Run("much "+name, func(t *testing.T) {
			g := instantiate(t, newRuntime(t), a.bytes(), fuel.Options{})
			_, used, err := g.spend(t, 1<<28, name, math.MaxUint32)
			if err == nil || g.left() >= 0 || used < math.MaxUint32/8 {
				t.Errorf("it used %d units, and %d were left: %v", used, g.left(), err)
			}
		})
	}
}

// TestLocalsArePaid holds that clearing many locals is no way to free work.
func TestLocalsArePaid(t *testing.T) {
	a := assembly{types: [][]byte{typeVoid}}
	a.function("run", 0, join([]byte{1}, number(50_000), []byte{0x7e}))
	g := instantiate(t, newRuntime(t), a.bytes(), fuel.Options{})

	_, used, err := g.spend(t, ampleFuel, "run")

	if err != nil || used < 50_000 {
		t.Errorf("it used %d units, want no fewer than 50000 (error: %v)", used, err)
	}
}

// TestGrowingEndsAtTheLimit holds that growing fails, as it does at the
// module's own limit, rather than traps.
func TestGrowingEndsAtTheLimit(t *testing.T) {
	a := assembly{types: [][]byte{typeUnary}, tables: [][]byte{{0x70, 0, 1}}, memories: [][]byte{{1, 1, 100}}}
	a.function("memory", 0, noLocals, 0x20, 0, 0x40, 0)
	a.function("table", 0, noLocals, 0xd0, 0x70, 0x20, 0, 0xfc, 15, 0)
	g := instantiate(t, newRuntime(t), a.bytes(), fuel.Options{MaxMemoryPages: 3, Limits: fuel.Limits{TableElements: 5}})
	for _, c := range []struct {
		function string
		by       uint64
		want     int32
	}{{"memory", 3, -1}, {"memory", 2, 1}, {"memory", 1, -1}, {"table", 5, -1}, {"table", 4, 1}, {"table", 1, -1}} {
		results, _, err := g.spend(t, ampleFuel, c.function, c.by)
		if err != nil || int32(results[0]) != c.want {
			t.Errorf("growing the %s by %d returned %v, want %d (error: %v)", c.function, c.by, results, c.want, err)
		}
	}
}
