// Package asm writes small WebAssembly modules, for tests that need modules which
// no toolchain generates. It does not validate them.
package asm

import (
	"encoding/binary"
	"slices"
)

// Types of values.
const (
	I32 = 0x7f
	I64 = 0x7e
)

// Module is a module under construction. Imports must be added before functions.
type Module struct {
	types, imports, functions, tables, memories, globals, exports, elements, code, data, names [][]byte

	start []byte
}

// Import adds an imported function and returns its index.
func (m *Module) Import(module, name string, params, results []byte) uint32 {
	m.imports = append(m.imports, join(text(module), text(name), []byte{0}, m.signature(params, results)))
	return uint32(len(m.imports) - 1)
}

// Func adds a function with locals of type i64, exported under its name unless that
// is empty, and returns its index.
func (m *Module) Func(name string, params, results []byte, locals int, code ...[]byte) uint32 {
	index := uint32(len(m.imports) + len(m.functions))
	m.functions = append(m.functions, m.signature(params, results))
	groups := list()
	if locals > 0 {
		groups = list(join(number(uint32(locals)), []byte{I64}))
	}
	m.code = append(m.code, sized(join(groups, slices.Concat(code...), []byte{0x0b})))
	if name != "" {
		m.exports = append(m.exports, join(text(name), []byte{0}, number(index)))
	}
	return index
}

// Hook adds an exported function without parameters and results.
func (m *Module) Hook(name string, code ...[]byte) uint32 { return m.Func(name, nil, nil, 0, code...) }

// Memory adds a memory with initial and maximum numbers of pages.
func (m *Module) Memory(least, most uint32) {
	if m.memories == nil {
		m.exports = append(m.exports, join(text("memory"), []byte{2, 0}))
	}
	m.memories = [][]byte{join([]byte{1}, number(least), number(most))}
}

// Global adds a mutable global of type i32 and returns its index.
func (m *Module) Global(value int32) uint32 {
	m.globals = append(m.globals, join([]byte{I32, 1}, I32Const(value), []byte{0x0b}))
	return uint32(len(m.globals) - 1)
}

// Table adds a table of functions, starting at index 0.
func (m *Module) Table(functions ...uint32) {
	m.tables = [][]byte{join([]byte{0x70, 0}, number(uint32(len(functions))))}
	var entries [][]byte
	for _, f := range functions {
		entries = append(entries, number(f))
	}
	m.elements = [][]byte{join([]byte{0, 0x41, 0, 0x0b}, list(entries...))}
}

// Data adds a data segment.
func (m *Module) Data(at int32, content []byte) {
	m.data = append(m.data, join([]byte{0}, I32Const(at), []byte{0x0b}, sized(content)))
}

// Start sets the start function.
func (m *Module) Start(function uint32) { m.start = number(function) }

// Name names a function, for traces. Functions must be named in the order of their indexes.
func (m *Module) Name(function uint32, name string) {
	m.names = append(m.names, join(number(function), text(name)))
}

// Bytes returns the module.
func (m *Module) Bytes() []byte {
	b := []byte("\x00asm\x01\x00\x00\x00")
	for _, s := range []struct {
		id      byte
		entries [][]byte
	}{
		{1, m.types}, {2, m.imports}, {3, m.functions}, {4, m.tables}, {5, m.memories}, {6, m.globals}, {7, m.exports},
		{8, nil}, {9, m.elements}, {10, m.code}, {11, m.data},
	} {
		switch {
		case s.id == 8 && m.start != nil:
			b = join(b, []byte{8}, sized(m.start))
		case len(s.entries) > 0:
			b = join(b, []byte{s.id}, sized(list(s.entries...)))
		}
	}
	if len(m.names) > 0 {
		b = join(b, []byte{0}, sized(join(text("name"), []byte{1}, sized(list(m.names...)))))
	}
	return b
}

func (m *Module) signature(params, results []byte) []byte {
	m.types = append(m.types, join([]byte{0x60}, sized(params), sized(results)))
	return number(uint32(len(m.types) - 1))
}

// I32Const pushes a number.
func I32Const(n int32) []byte { return join([]byte{0x41}, signed(int64(n))) }

// I32Store stores a number at an address.
func I32Store(at, n int32) []byte { return join(I32Const(at), I32Const(n), []byte{0x36, 2, 0}) }

// I32Load pushes the number at an address.
func I32Load(at int32) []byte { return join(I32Const(at), []byte{0x28, 2, 0}) }

// Call calls a function with constants.
func Call(function uint32, args ...int32) []byte {
	var b []byte
	for _, arg := range args {
		b = append(b, I32Const(arg)...)
	}
	return join(b, []byte{0x10}, number(function))
}

// GlobalGet pushes the value of a global.
func GlobalGet(index uint32) []byte { return join([]byte{0x23}, number(index)) }

// GlobalSet pops a value into a global.
func GlobalSet(index uint32) []byte { return join([]byte{0x24}, number(index)) }

// Forever repeats code in an infinite loop.
func Forever(code ...[]byte) []byte {
	return join([]byte{0x03, 0x40}, slices.Concat(code...), []byte{0x0c, 0, 0x0b})
}

// If runs code if the popped number is not zero.
func If(code ...[]byte) []byte { return join([]byte{0x04, 0x40}, slices.Concat(code...), []byte{0x0b}) }

// Instructions without operands.
var (
	Unreachable = []byte{0x00}
	Nop         = []byte{0x01}
	Drop        = []byte{0x1a}
	I32Eqz      = []byte{0x45}
	I32Add      = []byte{0x6a}
	MemorySize  = []byte{0x3f, 0}
	MemoryGrow  = []byte{0x40, 0}
	TableClear  = []byte{0x41, 0, 0xd0, 0x70, 0x26, 0} // the first entry of the table
)

func join(parts ...[]byte) []byte { return slices.Concat(parts...) }

func list(entries ...[]byte) []byte {
	return join(number(uint32(len(entries))), slices.Concat(entries...))
}

func sized(b []byte) []byte { return join(number(uint32(len(b))), b) }

func text(s string) []byte { return sized([]byte(s)) }

func number(n uint32) []byte { return binary.AppendUvarint(nil, uint64(n)) }

// signed writes a signed LEB128 number.
func signed(n int64) []byte {
	var b []byte
	for n < -0x40 || n > 0x3f {
		b = append(b, byte(n)&0x7f|0x80)
		n >>= 7
	}
	return append(b, byte(n)&0x7f)
}
