package fuel_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// with returns a module with a function "run" of this code, a table, a memory
// and a global.
func with(code ...byte) assembly {
	a := assembly{
		types: [][]byte{typeVoid}, tables: [][]byte{{0x70, 0, 1}}, memories: [][]byte{{0, 1}},
		globals: [][]byte{{0x7e, 1, 0x42, 0, 0x0b}},
	}
	a.function("run", 0, noLocals, code...)
	return a
}

// refusal is what a module is refused with, "" if it is taken in.
func refusal(t *testing.T, code []byte, o fuel.Options) string {
	t.Helper()
	_, err := fuel.Rewrite(code, o)
	if err == nil {
		return ""
	}
	var r *fuel.RejectedError
	if !errors.As(err, &r) {
		t.Fatalf("the error is a %T, want a refusal: %v", err, err)
	}
	return r.Message
}

func TestFeaturesAreRefusedByName(t *testing.T) {
	i32, i64 := []byte{0x41, 0}, []byte{0x42, 0}
	withMemory := func(m ...byte) assembly { a := with(); a.memories = [][]byte{m}; return a }
	withGlobal := func(g ...byte) assembly { a := with(); a.globals = [][]byte{g}; return a }
	withType := func(y ...byte) assembly { a := with(); a.types = append(a.types, y); return a }
	for feature, modules := range map[string][]assembly{
		"threads": {
			withMemory(3, 1, 1), with(0xfe, 3, 0),
			{types: [][]byte{typeVoid}, imports: [][]byte{join(text("env"), text("memory"), []byte{2, 3, 1, 1})}},
		},
		"tail calls": {with(0x12, 0), with(0x13, 0, 0)},
		"exceptions": {
			with(0x06, 0x40), with(0x08, 0), with(0x1f, 0x40, 0), withType(0x60, 1, 0x69, 0),
			{custom: section(13, []byte{1, 0, 0})},
			{types: [][]byte{typeVoid}, imports: [][]byte{join(text("env"), text("e"), []byte{4, 0, 0})}},
		},
		"multiple memories": {
			with(join(i32, []byte{0x28, 0x42, 0, 0})...), with(0x3f, 1),
			func() assembly { a := with(); a.memories = append(a.memories, []byte{0, 1}); return a }(),
		},
		"garbage-collected types":             {with(0xfb, 0, 0), withType(0x5f, 0), withType(0x60, 1, 0x6d, 0)},
		"typed function references":           {with(0x14, 0), withType(0x60, 1, 0x64, 0x70, 0), with(0xd5, 0)},
		"extended constant expressions":       {withGlobal(join([]byte{0x7e, 1}, i64, i64, []byte{0x7c, 0x0b})...)},
		"relaxed vector instructions":         {with(0xfd, 0x80, 2)},
		"a 64-bit memory or table":            {withMemory(4, 1), withMemory(5, 1, 1)},
		"memories with another size of pages": {withMemory(8, 1, 0)},
	} {
		for i, a := range modules {
			got := refusal(t, a.bytes(), fuel.Options{})
			want := "it uses " + feature + ", which are not supported"
			inFunction := "function 0 uses " + feature + ", which are not supported"
			if got != want && got != inFunction {
				t.Errorf("%s, case %d: the message is %q", feature, i, got)
			}
		}
	}
}

func TestRewrite_ReportsLimits(t *testing.T) {
	nested := with(join(repeat(0x03, 0x40, 6), repeat1(0x0b, 6))...)
	wide := assembly{types: [][]byte{typeVoid}}
	wide.function("run", 0, []byte{1, 50, 0x7f}, join(repeat(0x02, 0x40, 6), repeat1(0x0b, 6))...)
	named := with(repeat1(0x01, 100)...)
	named.custom = section(0, join(text("name"), []byte{1}, sized(list(join([]byte{0}, text("spin"))))))
	locals := assembly{types: [][]byte{typeVoid}}
	locals.function("run", 0, []byte{2, 30, 0x7f, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x7e})
	tables := with()
	tables.tables = append(tables.tables, tables.tables[0])
	large := with()
	large.tables = [][]byte{{0x70, 0, 100}}
	memory := with()
	memory.memories = [][]byte{{0, 9}}
	for _, c := range []struct {
		module assembly
		limits fuel.Limits
		want   string
	}{
		{named, fuel.Limits{ModuleSize: 50}, "it has 168 bytes, which is over the limit of 50"},
		{named, fuel.Limits{FunctionSize: 50}, `function 0 ("spin") has 102 bytes of code, which is over the limit of 50`},
		{nested, fuel.Limits{Loops: 5}, "function 0 has 6 loops, which is over the limit of 5"},
		{nested, fuel.Limits{Branches: 5}, "function 0 has 6 blocks and branches, which is over the limit of 5"},
		{wide, fuel.Limits{Joins: 299}, "function 0 has 300 blocks and branches times locals, which is over the limit of 299"},
		{locals, fuel.Limits{}, "function 0 has 4294967325 locals, which is over the limit of 50000"},
		{varied(), fuel.Limits{Functions: 2}, "it has more functions than the limit of 2"},
		{varied(), fuel.Limits{Entries: 4}, "it has 5 globals, which is over the limit of 4"},
		{varied(), fuel.Limits{Parameters: 1}, ""},
		{tables, fuel.Limits{Tables: 1}, "it has 2 tables, which is over the limit of 1"},
		{large, fuel.Limits{TableElements: 99}, "it has 100 elements in its tables, which is over the limit of 99"},
		{memory, fuel.Limits{}, "it has a memory of 9 pages of 64 KiB, which is over the limit of 8"},
	} {
		got := refusal(t, c.module.bytes(), fuel.Options{Limits: c.limits, MaxMemoryPages: 8})
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("message (-want +got):\n%s", diff)
		}
	}
}

// TestRewrite_ProtectsItsGlobals holds that a module cannot name the
// counter or the helpers, which lie just beyond what it has itself.
func TestRewrite_ProtectsItsGlobals(t *testing.T) {
	export := func(kind, index byte) assembly {
		a := with()
		a.exports = append(a.exports, join(text("x"), []byte{kind, index}))
		return a
	}
	reserved := with()
	reserved.exports = append(reserved.exports, join(text("gleaner:fuel"), []byte{3, 0}))
	elements := with()
	elements.elements = [][]byte{{0, 0x41, 0, 0x0b, 1, 1}}
	offset := with()
	offset.elements = [][]byte{{0, 0x23, 1, 0x0b, 1, 0}}
	initial := with()
	initial.globals = append(initial.globals, []byte{0x70, 0, 0xd2, 1, 0x0b})
	start := with()
	start.start = [][]byte{{1}}
	declared := with()
	declared.functions[0] = []byte{1}
	for name, a := range map[string]assembly{
		"a local for NaNs":      with(0x43, 0, 0, 0, 0, 0x91, 0x21, 0),
		"global.get":            with(0x23, 1, 0x1a),
		"global.set":            with(0x42, 0, 0x24, 1),
		"call of a helper":      with(0x41, 0, 0x10, 1, 0x1a),
		"ref.func of a helper":  with(0xd2, 1, 0x1a),
		"type of a helper":      with(0x41, 0, 0x41, 0, 0x11, 1, 0, 0x1a),
		"block of its type":     with(0x41, 0, 0x02, 1, 0x0b, 0x1a),
		"declared with it":      declared,
		"export of the counter": export(3, 1),
		"export of a helper":    export(0, 1),
		"a reserved name":       reserved,
		"element":               elements,
		"offset":                offset,
		"initial value":         initial,
		"start":                 start,
	} {
		if got := refusal(t, a.bytes(), fuel.Options{}); got == "" {
			t.Errorf("%s: it was taken in", name)
		}
	}
}

func TestRewritingTwiceIsRefused(t *testing.T) {
	once := rewrite(t, endless().bytes(), fuel.Options{})
	want := `it exports "gleaner:fuel": names that begin with "gleaner:" are reserved`
	if got := refusal(t, once.Code, fuel.Options{}); got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
}

func repeat(a, b byte, n int) []byte {
	var all []byte
	for range n {
		all = append(all, a, b)
	}
	return all
}

func repeat1(b byte, n int) []byte { return repeat(b, b, n/2) }
