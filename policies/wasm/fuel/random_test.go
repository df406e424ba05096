package fuel_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// TestRandomModulesPayForWhatTheyDo is a model test. A module is made at
// random, and once more with a count before each of its instructions. What
// ends under fuel has to have the outcome of the original, and to have paid
// for no less than was counted; what does not end has to run out.
func TestRandomModulesPayForWhatTheyDo(t *testing.T) {
	const modules, units = 1500, 50_000
	r := newRuntime(t)
	ended := 0
	for seed := range uint64(modules) {
		p := randomProgram(seed)
		g := instantiate(t, r, p.module(false), fuel.Options{})
		got, used, err := spendRandom(t, g, units)
		if err != nil && g.left() < 0 {
			if used <= units || !strings.Contains(err.Error(), "unreachable") {
				t.Errorf("seed %d: it ran out after %d of %d units with %v", seed, used, units, err)
			}
			closeAll(t, g)
			continue
		}
		ended++
		if g.left() < 0 {
			t.Fatalf("seed %d: it used more than it had, and went on", seed)
		}
		again := instantiate(t, r, p.module(false), fuel.Options{})
		if _, usedAgain, _ := spendRandom(t, again, units); usedAgain != used {
			t.Errorf("seed %d: it used %d units, and %d the next time", seed, used, usedAgain)
		}
		counted := plainInstance(t, r, p.module(true))
		want := observe(t, counted)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("seed %d: outcome (-original +rewritten):\n%s", seed, diff)
		}
		// What the first function does before a loop is paid there, which a trap may
		// prevent; what is of no more than 8 units, by the call, which is the test's.
		if done := int64(counted.ExportedGlobal("count").Get()); used < done-8 && (used < done-32 || got.Trap == "") {
			t.Errorf("seed %d: it used %d units for what is worth %d", seed, used, done)
		}
		closeAll(t, g, again, counted)
	}
	if ended < modules/10 || ended > modules*9/10 {
		t.Errorf("of %d modules %d ended: they are to be of both sorts", modules, ended)
	}
	t.Logf("of %d modules %d ended", modules, ended)
}

// outcome is what can be seen of a run.
type outcome struct {
	Results []uint64
	Trap    string // the first line of the error
	Global  uint64
	Memory  string
	Pages   uint32
}

func observe(t *testing.T, m api.Module) outcome {
	results, err := m.ExportedFunction("run").Call(t.Context(), 7, 9)
	o := outcome{Results: results, Global: m.ExportedGlobal("g").Get(), Pages: m.Memory().Size() >> 16}
	if err != nil {
		o.Trap, _, _ = strings.Cut(err.Error(), "\n")
	}
	memory, _ := m.Memory().Read(0, 1<<10)
	o.Memory = fmt.Sprintf("%x", memory)
	return o
}

func spendRandom(t *testing.T, g *guest, units int64) (outcome, int64, error) {
	g.refuel(units)
	o := observe(t, g)
	if o.Trap != "" {
		return o, units - g.left(), fmt.Errorf("trap: %s", o.Trap)
	}
	return o, units - g.left(), nil
}

func plainInstance(t *testing.T, r wazero.Runtime, code []byte) api.Module {
	t.Helper()
	m, err := r.InstantiateWithConfig(t.Context(), code, wazero.NewModuleConfig().WithName(""))
	if err != nil {
		t.Fatalf("instantiate the original: %v", err)
	}
	return m
}

func closeAll(t *testing.T, modules ...api.Module) {
	for _, m := range modules {
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// program is a module whose functions are lists of instructions.
type program struct {
	functions [][]instruction
}

type instruction []byte

const programFunctions = 4

func randomProgram(seed uint64) program {
	var p program
	for range programFunctions {
		g := &generator{random: rand.New(rand.NewPCG(seed, uint64(len(p.functions)))), labels: []byte{1}, room: 120}
		g.statements(4)
		g.expression(3)
		p.functions = append(p.functions, g.code)
	}
	return p
}

// module encodes the program; counted with an own count, in units, before each
// instruction that is not free, at each entry and in each round of a loop.
func (p program) module(counted bool) []byte {
	const params, locals, loop = 2, 2, 0x03
	a := assembly{
		types:    [][]byte{{0x60, params, 0x7f, 0x7f, 1, 0x7f}},
		tables:   [][]byte{{0x70, 0, programFunctions}},
		memories: [][]byte{{1, 1, 4}},
		globals:  [][]byte{{0x7f, 1, 0x41, 0, 0x0b}, {0x7e, 1, 0x42, 0, 0x0b}},
		exports:  [][]byte{join(text("memory"), []byte{2, 0}), join(text("g"), []byte{3, 0}), join(text("count"), []byte{3, 1})},
		elements: [][]byte{{0, 0x41, 0, 0x0b, programFunctions, 0, 1, 2, 3}},
	}
	for i, f := range p.functions {
		name := ""
		if i == 0 {
			name = "run"
		}
		code := count(nil, params+locals, counted)
		for _, c := range f {
			code = append(count(code, units(c), counted), c...)
			if c[0] == loop {
				code = count(code, 1, counted)
			}
		}
		a.function(name, 0, []byte{1, locals, 0x7f}, code...)
	}
	return a.bytes()
}

func count(code []byte, units int64, counted bool) []byte {
	if !counted || units == 0 {
		return code
	}
	return join(code, []byte{0x23, 1, 0x42}, signed(units), []byte{0x7c, 0x24, 1})
}

// units are what an instruction costs at least. Of a call's ten, eight may be
// for a callee that is small.
func units(c instruction) int64 {
	switch c[0] {
	case 0x01, 0x02, 0x03, 0x05, 0x0b: // nop, block, loop, else, end
		return 0
	case 0x10: // call, and its result
		return 3
	case 0x11: // call_indirect
		return 6
	case 0x6d, 0x70: // i32.div_s, i32.rem_u
		return 8
	case 0x40: // memory.grow
		return 200
	case 0xfc: // memory.copy, memory.fill
		return 21
	default:
		return 1
	}
}
