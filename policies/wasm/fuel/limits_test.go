package fuel_test

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// hugeCount returns so many copies of an entry.
func hugeCount(n int, entry []byte) [][]byte { return slices.Repeat([][]byte{entry}, n) }

// wide is a function type of so many parameters.
func wide(params int) []byte {
	return join([]byte{0x60}, number(uint32(params)), bytes.Repeat([]byte{0x7f}, params), []byte{0})
}

// TestAModuleIsBoundedAsAWhole holds for lists that are each small enough and
// together cost the host memory and time at every instantiation.
func TestAModuleIsBoundedAsAWhole(t *testing.T) {
	exported := func(n, length int) assembly {
		a := with()
		for i := range n {
			name := fmt.Sprintf("%d%s", i, strings.Repeat("x", length))
			a.exports = append(a.exports, join(text(name), []byte{0, 0}))
		}
		return a
	}
	segment := join([]byte{0, 0x41, 0, 0x0b}, list(hugeCount(90_000, []byte{0})...))
	results := join([]byte{0x60, 0}, number(1000), bytes.Repeat([]byte{0x7f}, 1000))
	calls := assembly{types: [][]byte{typeVoid, results}}
	calls.function("run", 0, noLocals, join(slices.Repeat([]byte{0x10, 1}, 1_100), []byte{0x00})...)
	calls.function("", 1, noLocals, 0x00)
	for claim, c := range map[string]struct {
		change func(*assembly)
		module assembly
		want   string
	}{
		"globals":                 {func(a *assembly) { a.globals = hugeCount(30_000, a.globals[0]) }, with(), "it has 30000 globals, which is over the limit of 10000"},
		"types":                   {func(a *assembly) { a.types = hugeCount(30_000, typeVoid) }, with(), "it has 30000 types, which is over the limit of 10000"},
		"widths of types":         {func(a *assembly) { a.types = append(a.types, hugeCount(51, wide(1000))...) }, with(), "it has 51000 parameters and results in its types, which is over the limit of 50000"},
		"exports":                 {nil, exported(20_000, 0), "it has 20001 exports, which is over the limit of 10000"},
		"names of exports":        {nil, exported(50, 100_000), "bytes in the names of its imports and exports, which is over the limit of 4194304"},
		"tables":                  {func(a *assembly) { a.tables = hugeCount(2, join([]byte{0x70, 0}, number(150_000))) }, with(), "it has 300000 elements in its tables, which is over the limit of 200000"},
		"elements":                {func(a *assembly) { a.elements = hugeCount(3, segment) }, with(), "it has 270000 elements in its segments, which is over the limit of 200000"},
		"element segments":        {func(a *assembly) { a.elements = hugeCount(20_000, []byte{0, 0x41, 0, 0x0b, 0}) }, with(), "it has 20000 element segments, which is over the limit of 10000"},
		"results of calls":        {nil, calls, "values at blocks, branches and calls, which is over the limit of 1000000"},
		"values of branches":      {nil, manyTargets(2_000, 1000), "values at blocks, branches and calls, which is over the limit of 1000000"},
		"data, which may be many": {func(a *assembly) { a.data = hugeCount(30_000, active(0, "x")) }, with(), ""},
	} {
		t.Run(claim, func(t *testing.T) {
			if c.change != nil {
				c.change(&c.module)
			}
			got := refusal(t, c.module.bytes(), fuel.Options{})
			if !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("the message is %q, want %q in it", got, c.want)
			}
		})
	}
}

// manyTargets is a branch to many blocks, each of which takes many values.
func manyTargets(targets, values int) assembly {
	results := join([]byte{0x60, 0}, number(uint32(values)), bytes.Repeat([]byte{0x7f}, values))
	a := assembly{types: [][]byte{results}}
	a.function("run", 0, noLocals, join([]byte{0x10, 0, 0x41, 0, 0x0e}, number(uint32(targets)), make([]byte, targets+1))...)
	return a
}

// TestTypesOfExportsAreKeptOnce holds for many exports of one wide function.
func TestTypesOfExportsAreKeptOnce(t *testing.T) {
	a := assembly{types: [][]byte{wide(1000)}}
	a.function("", 0, noLocals)
	for i := range 9_000 {
		a.exports = append(a.exports, join(text(fmt.Sprint(i)), []byte{0, 0}))
	}
	code := a.bytes()
	before := heapAfterGC()
	m := rewrite(t, code, fuel.Options{})
	if kept := heapAfterGC() - before; kept > 4<<20 {
		t.Errorf("of %d bytes of module, %d bytes are kept", len(code), kept)
	}
	if len(m.Exports) != 9_000 || len(m.Exports[8_999].Params) != 1000 {
		t.Error("the exports are not those of the module")
	}
}

func heapAfterGC() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestNamesThatAreTooManyAreLeftOut holds for the names of functions, which only
// traces need: they cost nothing when they can't be right.
func TestNamesThatAreTooManyAreLeftOut(t *testing.T) {
	entry := func(i int, name string) []byte { return join(number(uint32(i)), text(name)) }
	for claim, entries := range map[string][][]byte{
		"more than functions there may be": hugeCount(2_000_000, entry(0, "")),
		"out of order":                     hugeCount(150_000, entry(0, "x")),
		"long":                             {entry(0, strings.Repeat("x", 5<<20))},
	} {
		t.Run(claim, func(t *testing.T) {
			a := with()
			a.custom = section(0, join(text("name"), []byte{1}, sized(list(entries...))))
			code := a.bytes()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			m := rewrite(t, code, fuel.Options{})
			runtime.ReadMemStats(&after)
			if taken := after.TotalAlloc - before.TotalAlloc; taken > 1<<20 {
				t.Errorf("rewriting it took %d bytes", taken)
			}
			if bytes.Contains(m.Code, []byte("\x04name")) {
				t.Error("it has names")
			}
		})
	}
}
