package fuel_test

import (
	"encoding/binary"
	"slices"
)

// assembly is a module for a test: the entries of its sections, encoded.
type assembly struct {
	types, imports, functions, tables, memories, globals, exports, start, elements, dataCount, code, data [][]byte
	custom                                                                                                []byte // sections, whole
	borrowed                                                                                              int    // how many of the imports are functions
}

// bytes returns the module.
func (a assembly) bytes() []byte {
	b := []byte("\x00asm\x01\x00\x00\x00")
	for _, s := range []struct {
		id      byte
		entries [][]byte
	}{
		{1, a.types}, {2, a.imports}, {3, a.functions}, {4, a.tables}, {5, a.memories}, {6, a.globals},
		{7, a.exports}, {9, a.elements}, {10, a.code}, {11, a.data},
	} {
		if s.id == 9 && a.start != nil {
			b = append(b, section(8, a.start[0])...)
		}
		if len(s.entries) > 0 {
			b = append(b, section(s.id, list(s.entries...))...)
		}
		if s.id == 9 && a.dataCount != nil {
			b = append(b, section(12, a.dataCount[0])...)
		}
	}
	return append(b, a.custom...)
}

// function adds a function that is exported under a name, unless it is "".
func (a *assembly) function(name string, signature uint32, locals []byte, code ...byte) {
	if name != "" {
		a.exports = append(a.exports, join(text(name), []byte{0}, number(a.index())))
	}
	a.functions = append(a.functions, number(signature))
	a.code = append(a.code, sized(join(locals, code, []byte{0x0b})))
}

// index is that of the next function.
func (a *assembly) index() uint32 {
	return uint32(len(a.functions) + a.borrowed)
}

func section(id byte, content []byte) []byte { return join([]byte{id}, sized(content)) }

func sized(b []byte) []byte { return join(number(uint32(len(b))), b) }

func list(entries ...[]byte) []byte {
	return join(number(uint32(len(entries))), slices.Concat(entries...))
}

func text(s string) []byte { return sized([]byte(s)) }

func number(n uint32) []byte { return binary.AppendUvarint(nil, uint64(n)) }

// signed returns a signed LEB128 number.
func signed(n int64) []byte {
	var b []byte
	for n < -0x40 || n > 0x3f {
		b = append(b, byte(n)&0x7f|0x80)
		n >>= 7
	}
	return append(b, byte(n)&0x7f)
}

func join(parts ...[]byte) []byte { return slices.Concat(parts...) }

func i32const(n int32) []byte { return join([]byte{0x41}, signed(int64(n))) }

// Types that the tests' modules use.
var (
	typeVoid  = []byte{0x60, 0, 0}
	typeUnary = []byte{0x60, 1, 0x7f, 1, 0x7f}
)

var noLocals = []byte{0}

// endless has the function run, which never ends by itself.
func endless() assembly {
	a := assembly{types: [][]byte{typeVoid}}
	a.function("run", 0, noLocals, 0x03, 0x40, 0x0c, 0, 0x0b)
	return a
}
