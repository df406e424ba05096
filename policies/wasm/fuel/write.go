package fuel

import (
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
)

func appendU32(b []byte, n uint32) []byte { return binary.AppendUvarint(b, uint64(n)) }

// appendS64 writes a signed LEB128 number.
func appendS64(b []byte, n int64) []byte {
	for n < -0x40 || n > 0x3f {
		b = append(b, byte(n)&0x7f|0x80)
		n >>= 7
	}
	return append(b, byte(n)&0x7f)
}

func appendName(b []byte, name string) []byte {
	return append(appendU32(b, uint32(len(name))), name...)
}

// write returns the rewritten module.
func (m *module) write() Module {
	out := Module{Imports: m.imports, Exports: m.exports, Memory: m.memory}
	m.addGlobals()
	m.addHelpers()
	m.addExports(&out)
	out.Data = m.extractData()
	b := []byte("\x00asm\x01\x00\x00\x00")
	for _, id := range order {
		b = m.appendSection(b, id)
	}
	out.Code = m.appendNames(b)
	return out
}

func (m *module) appendSection(b []byte, id byte) []byte {
	l := m.lists[id]
	if id == sectionDataCount {
		if l.entries != nil {
			b = append(b, id)
			b = appendU32(b, uint32(len(l.entries)))
			b = append(b, l.entries...)
		}
		return b
	}
	if l.count == 0 {
		return b
	}
	count := appendU32(nil, uint32(l.count))
	b = append(b, id)
	b = appendU32(b, uint32(len(count)+len(l.entries)))
	b = append(b, count...)
	return append(b, l.entries...)
}

// The rewritten module's own globals come after the original's.
func (m *module) fuelGlobal() uint32    { return uint32(len(m.globals)) }
func (m *module) changedGlobal() uint32 { return uint32(len(m.globals)) + 1 }

func (m *module) addGlobals() {
	m.lists[sectionGlobal].add(byte(I64), 1, opI64Const, 0, opEnd)
	m.lists[sectionGlobal].add(byte(I32), 1, opI32Const, 0, opEnd)
}

// addExports exports what a host needs: the counter, the mutable globals, the start
// function, and a memory that replaces an imported one.
func (m *module) addExports(out *Module) {
	exports := &m.lists[sectionExport]
	add := func(name string, kind byte, index uint32) {
		exports.add(appendU32(append(appendName(nil, name), kind), index)...)
	}
	const function, memory, global = 0, 2, 3
	add(FuelGlobal, global, m.fuelGlobal())
	add(ChangedGlobal, global, m.changedGlobal())
	for i, g := range m.globals {
		if g.mutable && g.restorable() {
			name := Prefix + "global:" + strconv.Itoa(i)
			out.Globals = append(out.Globals, name)
			add(name, global, uint32(i))
		}
	}
	if m.start >= 0 {
		out.Start = Prefix + "start"
		add(out.Start, function, uint32(m.start))
	}
	if m.definesMemory {
		if _, taken := m.exportNamed("memory"); !taken {
			add("memory", memory, 0)
		}
	}
}

// appendNames writes the names of functions, in the order of their indexes.
func (m *module) appendNames(b []byte) []byte {
	if m.names == nil {
		return b
	}
	maps.DeleteFunc(m.names, func(i uint32, _ string) bool { return int64(i) >= int64(len(m.funcs)) })
	for i, name := range helperNames {
		m.names[m.helper(i)] = name
	}
	var names []byte
	indexes := slices.Sorted(maps.Keys(m.names))
	for _, i := range indexes {
		names = appendName(appendU32(names, i), m.names[i])
	}
	names = append(appendU32(nil, uint32(len(indexes))), names...)
	const functionNames = 1
	section := append(appendName(nil, "name"), functionNames)
	section = append(appendU32(section, uint32(len(names))), names...)
	b = append(b, sectionCustom)
	return append(appendU32(b, uint32(len(section))), section...)
}
