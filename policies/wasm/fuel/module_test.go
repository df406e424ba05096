package fuel_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero/api"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// varied has one of everything that a Module tells of.
func varied() assembly {
	a := assembly{
		types: [][]byte{typeVoid, typeUnary},
		imports: [][]byte{
			join(text("env"), text("log"), []byte{0, 1}),
			join(text("env"), text("memory"), []byte{2, 0, 2}),
		},
		borrowed: 1,
		tables:   [][]byte{{0x70, 0, 1}},
		globals: [][]byte{
			{0x7f, 0, 0x41, 1, 0x0b},                                        // constant
			{0x7f, 1, 0x41, 2, 0x0b},                                        // i32
			join([]byte{0x7c, 1, 0x44}, make([]byte, 8), []byte{0x0b}),      // f64
			{0x70, 1, 0xd0, 0x70, 0x0b},                                     // funcref
			join([]byte{0x7b, 1, 0xfd, 12}, make([]byte, 16), []byte{0x0b}), // v128
		},
	}
	a.function("run", 1, noLocals, 0x20, 0)
	a.function("", 0, noLocals)
	a.start = [][]byte{{2}}
	a.exports = append(a.exports, join(text("limit"), []byte{3, 0}), join(text("table"), []byte{1, 0}))
	return a
}

func TestModuleTellsWhatTheHostNeeds(t *testing.T) {
	m := rewrite(t, varied().bytes(), fuel.Options{DefineMemory: true, MaxMemoryPages: 16})
	m.Code = nil
	i32 := []fuel.ValueType{fuel.I32}
	want := fuel.Module{
		Imports: []fuel.Import{{Module: "env", Name: "log", Kind: fuel.KindFunction, Params: i32, Results: i32}},
		Exports: []fuel.Export{
			{Name: "run", Kind: fuel.KindFunction, Params: i32, Results: i32},
			{Name: "limit", Kind: fuel.KindGlobal},
			{Name: "table", Kind: fuel.KindTable},
		},
		Start:   "gleaner:start",
		Globals: []string{"gleaner:global:1", "gleaner:global:2"},
		Memory:  &fuel.Memory{Min: 2, Max: 16},
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("module (-want +got):\n%s", diff)
	}
}

func TestImportedMemoryStaysWhereItIsWanted(t *testing.T) {
	m := rewrite(t, varied().bytes(), fuel.Options{})
	want := []fuel.Import{m.Imports[0], {Module: "env", Name: "memory", Kind: fuel.KindMemory}}
	if diff := cmp.Diff(want, m.Imports); diff != "" {
		t.Errorf("imports (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&fuel.Memory{Imported: true, Min: 2, Max: 1 << 16}, m.Memory); diff != "" {
		t.Errorf("memory (-want +got):\n%s", diff)
	}
}

// TestExportsCarryTheState holds that the globals listed are the module's own,
// by their order, and that the memory is found under its name.
func TestExportsCarryTheState(t *testing.T) {
	r := newRuntime(t)
	_, err := r.NewHostModuleBuilder("env").NewFunctionBuilder().
		WithFunc(func(n uint32) uint32 { return n }).Export("log").Instantiate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g := instantiate(t, r, varied().bytes(), fuel.Options{DefineMemory: true})

	if size := g.ExportedMemory("memory").Size(); size != 2<<16 {
		t.Errorf("the memory has %d bytes, want %d", size, 2<<16)
	}
	if got := g.ExportedGlobal("gleaner:global:1").Get(); got != 2 {
		t.Errorf("the first mutable global is %d, want 2", got)
	}
	for _, name := range g.rewritten.Globals {
		if _, ok := g.ExportedGlobal(name).(api.MutableGlobal); !ok {
			t.Errorf("the global %s is not mutable", name)
		}
	}
}

// TestRewrite_MarksUnrestorableChanges holds for each operation alone.
func TestRewrite_MarksUnrestorableChanges(t *testing.T) {
	zero, null := []byte{0x41, 0}, []byte{0xd0, 0x70}
	three := join(zero, zero, zero)
	for name, c := range map[string]struct {
		code []byte
		want bool
	}{
		"table.set":                       {join(zero, null, []byte{0x26, 0}), true},
		"table.init":                      {join(three, []byte{0xfc, 12, 0, 0}), true},
		"elem.drop":                       {[]byte{0xfc, 13, 0}, true},
		"table.copy":                      {join(three, []byte{0xfc, 14, 0, 0}), true},
		"table.grow":                      {join(null, zero, []byte{0xfc, 15, 0, 0x1a}), true},
		"table.fill":                      {join(zero, null, zero, []byte{0xfc, 17, 0}), true},
		"data.drop":                       {[]byte{0xfc, 9, 0}, true},
		"global.set of a funcref":         {join(null, []byte{0x24, 1}), true},
		"global.set of a v128":            {join([]byte{0xfd, 12}, make([]byte, 16), []byte{0x24, 2}), true},
		"global.set of an i32":            {join(zero, []byte{0x24, 0}), false},
		"table.get":                       {join(zero, []byte{0x25, 0, 0x1a}), false},
		"table.size":                      {[]byte{0xfc, 16, 0, 0x1a}, false},
		"memory.init":                     {join(three, []byte{0xfc, 8, 0, 0}), false},
		"memory.copy":                     {join(three, []byte{0xfc, 10, 0, 0}), false},
		"memory.fill":                     {join(three, []byte{0xfc, 11, 0}), false},
		"memory.grow":                     {join(zero, []byte{0x40, 0, 0x1a}), false},
		"a table.set that is not reached": {join([]byte{0x0f}, zero, null, []byte{0x26, 0}), false},
	} {
		t.Run(name, func(t *testing.T) {
			a := assembly{
				types: [][]byte{typeVoid}, tables: [][]byte{{0x70, 0, 1}}, memories: [][]byte{{0, 1}},
				globals: [][]byte{
					{0x7f, 1, 0x41, 0, 0x0b}, {0x70, 1, 0xd0, 0x70, 0x0b},
					join([]byte{0x7b, 1, 0xfd, 12}, make([]byte, 16), []byte{0x0b}),
				},
				elements: [][]byte{{1, 0, 0}}, dataCount: [][]byte{{1}}, data: [][]byte{{1, 0}},
			}
			a.function("run", 0, noLocals, c.code...)
			g := instantiate(t, newRuntime(t), a.bytes(), fuel.Options{})
			if g.changed() {
				t.Error("it is told before anything has run")
			}
			if _, _, err := g.spend(t, ampleFuel, "run"); err != nil {
				t.Fatal(err)
			}
			if g.changed() != c.want {
				t.Errorf("it is told: %v, want %v", g.changed(), c.want)
			}
		})
	}
}

func TestNamesAreKeptForTraces(t *testing.T) {
	names := join(text("name"),
		[]byte{0}, sized(text("the module")), // not kept
		[]byte{1}, sized(list(join([]byte{0}, text("spin")), join(number(1<<30), text("nothing")))))
	a := endless()
	a.custom = join(section(0, join(text("producers"), []byte("dropped"))), section(0, names))
	g := instantiate(t, newRuntime(t), a.bytes(), fuel.Options{})

	_, _, err := g.spend(t, 100, "run")

	if err == nil || !strings.Contains(err.Error(), "spin") {
		t.Errorf("the trap does not name the function: %v", err)
	}
	for _, gone := range []string{"dropped", "the module", "nothing"} {
		if strings.Contains(string(g.rewritten.Code), gone) {
			t.Errorf("the rewritten module still has %q", gone)
		}
	}
}

// TestDamagedNamesAreDropped holds since the engine would refuse them, or take
// their counts at their word.
func TestDamagedNamesAreDropped(t *testing.T) {
	for name, content := range map[string][]byte{
		"a huge count":      join([]byte{1}, sized([]byte{0xff, 0xff, 0xff, 0xff, 0x0f})),
		"a huge subsection": {1, 0xff, 0xff, 0xff, 0xff, 0x0f},
		"cut short":         {1, 5, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := endless()
			a.custom = section(0, join(text("name"), content))
			m := rewrite(t, a.bytes(), fuel.Options{})
			if strings.Contains(string(m.Code), "\x04name") {
				t.Error("the rewritten module still has them")
			}
			if _, err := newRuntime(t).CompileModule(t.Context(), m.Code); err != nil {
				t.Error(err)
			}
		})
	}
}
