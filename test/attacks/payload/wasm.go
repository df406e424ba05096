package payload

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gleaner-dev/gleaner/policies/wasm/asm"
)

const (
	abstain = `{"decision": "Abstain"}`
	at      = 1024 // address of the verdict

	pageSize     = 64 << 10
	tableMaximum = 1_000_000 // elements of one segment that the rewriter takes
)

// guest is a module whose hook collect abstains after it has run other code.
type guest struct {
	asm.Module
	write uint32
}

func newGuest(pages uint32) *guest {
	g := &guest{}
	g.write = g.Import("gleaner_v1", "verdict_write", []byte{asm.I32, asm.I32}, nil)
	g.Memory(pages, 1<<16)
	return g
}

func (g *guest) collect(code ...[]byte) []byte {
	g.Data(at, []byte(abstain))
	g.Hook("collect", append(code, asm.Call(g.write, at, int32(len(abstain))))...)
	return g.Bytes()
}

// until repeats code that leaves a number on the stack, until that is not zero.
func until(code ...[]byte) []byte {
	const block, loop, branchIf, branch, end = 0x02, 0x03, 0x0d, 0x0c, 0x0b
	return slices.Concat([]byte{block, 0x40, loop, 0x40}, slices.Concat(code...), []byte{branchIf, 1, branch, 0, end, end})
}

// EndlessStart never comes to an end while it is initialized.
func EndlessStart(int64) []byte {
	g := newGuest(1)
	g.Hook("_initialize", asm.Forever())
	return g.collect()
}

// EndlessCall never comes to an end when it is called.
func EndlessCall(int64) []byte {
	return newGuest(1).collect(asm.Forever())
}

// FillMemory writes into each page of all the memory that it may have.
func FillMemory(memory int64) []byte {
	g := newGuest(uint32(memory / pageSize))
	g.Hook("_initialize", g.touch(memory))
	return g.collect()
}

// FillMemoryWhenCalled does so in each call, so that nothing of it is kept afterward.
func FillMemoryWhenCalled(memory int64) []byte {
	g := newGuest(uint32(memory / pageSize))
	return g.collect(g.touch(memory))
}

// touch writes into each page of the memory.
func (g *guest) touch(memory int64) []byte {
	const page, greaterOrEqual = 4096, 0x4f
	address := g.Global(0)
	store := slices.Concat(asm.GlobalGet(address), asm.I32Const(1), []byte{0x36, 2, 0})
	next := slices.Concat(asm.GlobalGet(address), asm.I32Const(page), asm.I32Add, asm.GlobalSet(address))
	last := slices.Concat(asm.GlobalGet(address), asm.I32Const(int32(memory-page)), []byte{greaterOrEqual})
	return until(store, next, last)
}

// RandomLoads reads from addresses all over its memory until its fuel is used up. Each
// load misses the caches, so that a unit of fuel takes far longer than usual.
func RandomLoads(memory int64) []byte {
	memory = min(memory, defaultMemory)
	g := newGuest(uint32(memory / pageSize))
	touch := g.touch(memory) // or all pages would be the same one, of zeros
	state := g.Global(1)
	const multiply, and = 0x6c, 0x71
	step := slices.Concat(
		asm.GlobalGet(state), asm.I32Const(1664525), []byte{multiply}, asm.I32Const(1013904223), asm.I32Add, asm.GlobalSet(state),
		asm.GlobalGet(state), asm.I32Const(int32(memory-4)), []byte{and, 0x28, 0, 0}, // i32.load
		asm.GlobalGet(state), asm.I32Add, asm.GlobalSet(state), // the next address depends on what was read
	)
	return g.collect(touch, asm.Forever(slices.Repeat(step, 8)))
}

// ElementSegments has 60 million elements in segments that nothing uses.
func ElementSegments(int64) []byte {
	s := split(newGuest(1).collect())
	s.add(tableSection, []byte{0x70, 0, 1}) // a table of one function
	segment := slices.Concat([]byte{1, 0}, number(tableMaximum), make([]byte, tableMaximum))
	for range 60 {
		s.add(elementSection, segment)
	}
	return s.bytes()
}

// RewrittenTables fills a table of a million elements again and again when it is
// instantiated, and changes it in each call, so that no instance can be used twice.
func RewrittenTables(int64) []byte { return rewrittenTables(tableMaximum, 30) }

// LargestTables does so with no more elements than a module may have.
func LargestTables(int64) []byte { return rewrittenTables(99_000, 1) }

func rewrittenTables(elements uint32, times int) []byte {
	s := split(newGuest(1).collect(asm.TableClear))
	s.add(tableSection, slices.Concat([]byte{0x70, 0}, number(elements)))
	segment := slices.Concat([]byte{0, 0x41, 0, 0x0b}, number(elements), make([]byte, elements))
	for range times {
		s.add(elementSection, segment)
	}
	return s.bytes()
}

// WideExports exports a function of a thousand parameters under as many names as there
// may be.
func WideExports(int64) []byte {
	const parameters, exports = 1000, 99_000
	g := newGuest(1)
	wide := g.Func("", slices.Repeat([]byte{asm.I32}, parameters), nil, 0)
	s := split(g.collect())
	for i := range exports {
		label := fmt.Sprintf("%x", i)
		s.add(exportSection, slices.Concat(number(uint32(len(label))), []byte(label), []byte{0}, number(wide)))
	}
	return s.bytes()
}

// SlowToCompile has as much code as a module may have, in functions that keep the
// engine's compiler busy for long.
func SlowToCompile(int64) []byte {
	const functions, locals, steps = 1500, 90, 900
	g := newGuest(1)
	for range functions {
		var body []byte
		for i := range steps {
			a, b := byte(i%locals), byte((i*7+3)%locals)
			body = append(body, 0x20, a, 0x20, b, 0x7c, 0x22, a, 0x50, 0x04, 0x40, 0x20, b, 0x42, 1, 0x7c, 0x21, b, 0x0b)
		}
		g.Func("", nil, nil, locals, body)
	}
	return g.collect()
}

// ManyNames gives names to 13 million functions, which the module does not have.
func ManyNames(int64) []byte {
	const names = 13_000_000
	entries := make([]byte, 0, 5*names)
	for i := range uint32(names) {
		entries = append(append(entries, number(i)...), 0)
	}
	list := append(number(names), entries...)
	section := slices.Concat([]byte("\x04name\x01"), number(uint32(len(list))), list)
	return slices.Concat(newGuest(1).collect(), []byte{0}, number(uint32(len(section))), section)
}

// All returns the payloads in the order of the findings that they belong to.
func All() []Payload {
	limits := Limits{Fuel: FuelLimits[0], Timeout: TimeoutLimits[0]}
	memory := Limits{Fuel: FuelLimits[0], Memory: MemoryLimits[0], Timeout: TimeoutLimits[0]}
	return []Payload{
		{Name: "endless-start", Wasm: EndlessStart, Policies: 1, Limits: limits},
		{Name: "endless-call", Wasm: EndlessCall, Policies: 1, Orphans: 5, Limits: limits},
		{Name: "nested-templates", Rego: func() string { return NestedTemplates(45) }},
		{Name: "union-types", Rego: func() string { return UnionTypes(34) }},
		{Name: "nested-parentheses", Rego: func() string { return NestedParentheses(15_000) }, Copies: 4},
		{Name: "fill-memory", Wasm: FillMemory, Policies: 6, Limits: memory},
		{Name: "fill-memory-when-called", Wasm: FillMemoryWhenCalled, Policies: 4, Orphans: 100, Limits: memory},
		{Name: "element-segments", Wasm: ElementSegments, Copies: 4, Policies: 4},
		{Name: "wide-exports", Wasm: WideExports, Copies: 16, Policies: 1},
		{Name: "rewritten-tables", Wasm: RewrittenTables, Policies: 1, Orphans: 20},
		{Name: "largest-tables", Wasm: LargestTables, Policies: 1, Orphans: 200},
		{Name: "large-patterns", Rego: LargePatterns, Policies: 1, Orphans: 20},
		{Name: "slow-to-compile", Wasm: SlowToCompile, Copies: 4},
		{Name: "random-loads", Wasm: RandomLoads, Policies: 1, Orphans: 300},
	}
}

// Named returns the payload of a name.
func Named(name string) (Payload, bool) {
	all := All()
	i := slices.IndexFunc(all, func(p Payload) bool { return strings.EqualFold(p.Name, name) })
	if i < 0 {
		return Payload{}, false
	}
	return all[i], true
}
