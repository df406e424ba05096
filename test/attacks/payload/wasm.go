package payload

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gleaner-dev/gleaner/policies/wasm/asm"
)

const (
	abstain        = `{"decision": "Abstain"}`
	verdictAddress = 1024 // address of the verdict

	pageSize     = 64 << 10
	tableMaximum = 1_000_000 // elements in one segment that the rewriter accepts
)

// guest is a module whose collect hook runs other code and then abstains.
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
	g.Data(verdictAddress, []byte(abstain))
	g.Hook("collect", append(code, asm.Call(g.write, verdictAddress, int32(len(abstain))))...)
	return g.Bytes()
}

// loopUntilNonzero repeats code until it leaves a nonzero number on the stack.
func loopUntilNonzero(code ...[]byte) []byte {
	const block, loop, branchIf, branch, end = 0x02, 0x03, 0x0d, 0x0c, 0x0b
	return slices.Concat([]byte{block, 0x40, loop, 0x40}, slices.Concat(code...), []byte{branchIf, 1, branch, 0, end, end})
}

// EndlessStart loops forever during initialization.
func EndlessStart(int64) []byte {
	g := newGuest(1)
	g.Hook("_initialize", asm.Forever())
	return g.collect()
}

// EndlessCall loops forever when it is called.
func EndlessCall(int64) []byte {
	return newGuest(1).collect(asm.Forever())
}

// FillMemory writes to each page of its memory during initialization.
func FillMemory(memory int64) []byte {
	g := newGuest(uint32(memory / pageSize))
	g.Hook("_initialize", g.touchPages(memory))
	return g.collect()
}

// FillMemoryWhenCalled writes to each page of its memory in each call, so that memory is released afterwards.
func FillMemoryWhenCalled(memory int64) []byte {
	g := newGuest(uint32(memory / pageSize))
	return g.collect(g.touchPages(memory))
}

// touchPages writes to each page of the memory.
func (g *guest) touchPages(memory int64) []byte {
	const page, greaterOrEqual = 4096, 0x4f
	address := g.Global(0)
	store := slices.Concat(asm.GlobalGet(address), asm.I32Const(1), []byte{0x36, 2, 0})
	next := slices.Concat(asm.GlobalGet(address), asm.I32Const(page), asm.I32Add, asm.GlobalSet(address))
	last := slices.Concat(asm.GlobalGet(address), asm.I32Const(int32(memory-page)), []byte{greaterOrEqual})
	return loopUntilNonzero(store, next, last)
}

// RandomLoads reads from random addresses of its memory until its fuel is used up. Each
// load misses the caches, so a unit of fuel takes far longer than usual.
func RandomLoads(memory int64) []byte {
	memory = min(memory, defaultMemory)
	g := newGuest(uint32(memory / pageSize))
	touch := g.touchPages(memory) // otherwise all pages would be the shared zero page
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
	segment := slices.Concat([]byte{1, 0}, encodeNumber(tableMaximum), make([]byte, tableMaximum))
	for range 60 {
		s.add(elementSection, segment)
	}
	return s.bytes()
}

// RewrittenTables repeatedly fills a table of a million elements when it is
// instantiated, and changes it in each call, so that no instance can be reused.
func RewrittenTables(int64) []byte { return rewrittenTables(tableMaximum, 30) }

// LargestTables is like RewrittenTables, with as many elements as a module may have.
func LargestTables(int64) []byte { return rewrittenTables(99_000, 1) }

func rewrittenTables(elements uint32, times int) []byte {
	s := split(newGuest(1).collect(asm.TableClear))
	s.add(tableSection, slices.Concat([]byte{0x70, 0}, encodeNumber(elements)))
	segment := slices.Concat([]byte{0, 0x41, 0, 0x0b}, encodeNumber(elements), make([]byte, elements))
	for range times {
		s.add(elementSection, segment)
	}
	return s.bytes()
}

// WideExports exports a function of a thousand parameters under the maximum number of
// names.
func WideExports(int64) []byte {
	const parameters, exports = 1000, 99_000
	g := newGuest(1)
	wide := g.Func("", slices.Repeat([]byte{asm.I32}, parameters), nil, 0)
	s := split(g.collect())
	for i := range exports {
		label := fmt.Sprintf("%x", i)
		s.add(exportSection, slices.Concat(encodeNumber(uint32(len(label))), []byte(label), []byte{0}, encodeNumber(wide)))
	}
	return s.bytes()
}

// SlowToCompile has the maximum amount of code, in functions that take the
// engine's compiler long.
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

// ManyNames has names for 13 million functions that the module does not have.
func ManyNames(int64) []byte {
	const names = 13_000_000
	entries := make([]byte, 0, 5*names)
	for i := range uint32(names) {
		entries = append(append(entries, encodeNumber(i)...), 0)
	}
	list := append(encodeNumber(names), entries...)
	section := slices.Concat([]byte("\x04name\x01"), encodeNumber(uint32(len(list))), list)
	return slices.Concat(newGuest(1).collect(), []byte{0}, encodeNumber(uint32(len(section))), section)
}

// All returns the payloads in the order of their findings.
func All() []Payload {
	limits := Limits{Fuel: FuelLimits[0], Timeout: TimeoutLimits[0]}
	memory := Limits{Fuel: FuelLimits[0], Memory: MemoryLimits[0], Timeout: TimeoutLimits[0]}
	return []Payload{
		{Name: "endless-start", Wasm: EndlessStart, Policies: 1, Limits: limits},
		{Name: "endless-call", Wasm: EndlessCall, Policies: 1, Orphans: 5, Limits: limits},
		{Name: "nested-templates", Rego: func() string { return NestedTemplates(45) }},
		{Name: "union-types", Rego: func() string { return UnionTypes(14) }},
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

// Named returns the payload with a name.
func Named(name string) (Payload, bool) {
	all := All()
	i := slices.IndexFunc(all, func(p Payload) bool { return strings.EqualFold(p.Name, name) })
	if i < 0 {
		return Payload{}, false
	}
	return all[i], true
}
