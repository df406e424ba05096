package fuel

import (
	"math"
	"slices"
	"strings"
)

func (m *module) readType(r *reader) {
	at := r.offset()
	switch form := r.byte(); {
	case form == 0x60:
	case form >= 0x4e && form <= 0x5f:
		r.unsupported("garbage-collected types")
	default:
		r.fail("the type at offset %#x is damaged", at)
	}
	limit := m.options.Limits.Parameters
	s := signature{params: r.valueTypes("parameters of one function", limit), types: &signatureTypes{}}
	s.results = r.valueTypes("results of one function", limit)
	m.types = append(m.types, s)
	m.typeValues += len(s.params) + len(s.results)
	r.checkLimit("parameters and results in its types", m.typeValues, m.options.Limits.TypeValues)
}

func (r *reader) valueTypes(what string, limit int) []byte {
	n := r.count(what, limit)
	at := r.pos
	for range n {
		r.valueType()
	}
	return r.data[min(at, r.pos):r.pos]
}

func (r *reader) valueType() ValueType {
	at := r.offset()
	switch t := ValueType(r.byte()); t {
	case I32, I64, F32, F64, V128, FuncRef, ExternRef:
		return t
	case 0x63, 0x64:
		r.unsupported("typed function references")
	case 0x69:
		r.unsupported("exceptions")
	case 0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x71, 0x72, 0x73:
		r.unsupported("garbage-collected types")
	default:
		r.fail("at offset %#x there is no type", at)
	}
	return 0
}

func (r *reader) refType() ValueType {
	at := r.offset()
	t := r.valueType()
	if t != FuncRef && t != ExternRef {
		r.fail("at offset %#x there is no type of reference", at)
	}
	return t
}

func (m *module) readImport(r *reader) {
	at := r.pos
	imported := Import{Module: m.readName(r), Name: m.readName(r)}
	offset := r.offset()
	switch kind := r.byte(); kind {
	case 0:
		imported.Kind = KindFunction
		index := r.index("type", len(m.types))
		if r.err != nil {
			return
		}
		m.funcs = append(m.funcs, index)
		m.importedFuncs++
		imported.Params, imported.Results = m.types[index].lists()
	case 1:
		imported.Kind = KindTable
		m.countTable(r, r.tableType().min)
	case 2:
		imported.Kind = KindMemory
		l := r.memoryType()
		if m.countMemory(r); m.options.DefineMemory {
			m.definesMemory = true
			m.defineMemory(r, l)
			return
		}
		m.memory = &Memory{Imported: true, Min: l.min, Max: l.maxPages()}
	case 3:
		imported.Kind = KindGlobal
		m.globals = append(m.globals, r.globalType())
		m.importedGlobals++
	case 4:
		r.unsupported("exceptions")
	default:
		r.fail("the import at offset %#x is of the unknown kind %d", offset, kind)
	}
	m.imports = append(m.imports, imported)
	m.lists[sectionImport].add(r.data[at:max(at, r.pos)]...)
}

func (s signature) lists() (params, results []ValueType) {
	if s.types.params == nil && s.types.results == nil {
		s.types.params, s.types.results = valueTypes(s.params), valueTypes(s.results)
	}
	return s.types.params, s.types.results
}

// readName reads the name of an import or export.
func (m *module) readName(r *reader) string {
	name := r.name()
	m.nameBytes += len(name)
	r.checkLimit("bytes in the names of its imports and exports", m.nameBytes, m.options.Limits.Names)
	return name
}

func valueTypes(encoded []byte) []ValueType {
	var types []ValueType
	for _, b := range encoded {
		types = append(types, ValueType(b))
	}
	return types
}

func (m *module) readFunction(r *reader) {
	m.funcs = append(m.funcs, r.index("type", len(m.types)))
	if len(m.funcs) > m.options.Limits.Functions {
		r.fail("it has more functions than the limit of %d", m.options.Limits.Functions)
	}
}

func (m *module) countTable(r *reader, elements uint32) {
	if m.tables++; m.tables > m.options.Limits.Tables {
		r.fail("it has more tables than the limit of %d", m.options.Limits.Tables)
	}
	m.tableElements += int(elements)
	r.checkLimit("elements in its tables", m.tableElements, m.options.Limits.TableElements)
}

func (m *module) countMemory(r *reader) {
	if m.memory != nil {
		r.unsupported("multiple memories")
	}
}

// readTable bounds the table, so that growing it ends at the limit as it would
// at the table's own.
func (m *module) readTable(r *reader) {
	l := r.tableType()
	m.countTable(r, l.min)
	l.bound(uint32(min(m.options.Limits.TableElements, math.MaxUint32)))
	m.lists[sectionTable].add(l.append([]byte{byte(l.kind)})...)
}

func (m *module) readMemory(r *reader) {
	m.countMemory(r)
	m.defineMemory(r, r.memoryType())
}

func (m *module) defineMemory(r *reader, l limits) {
	if limit := m.options.MaxMemoryPages; limit > 0 {
		if l.min > limit {
			r.fail("it has a memory of %d pages of 64 KiB, which is over the limit of %d", l.min, limit)
		}
		l.bound(limit)
	}
	m.memory = &Memory{Min: l.min, Max: l.maxPages()}
	m.lists[sectionMemory].add(l.append(nil)...)
}

func (l *limits) bound(limit uint32) {
	if !l.bounded || l.max > limit {
		l.bounded, l.max = true, limit
	}
}

// maxPages is how many pages a memory may have: 4 GiB if it does not say.
func (l *limits) maxPages() uint32 {
	if l.bounded {
		return l.max
	}
	return 1 << 16
}

func (l *limits) append(b []byte) []byte {
	if !l.bounded {
		return appendU32(append(b, 0), l.min)
	}
	return appendU32(appendU32(append(b, 1), l.min), l.max)
}

func (r *reader) tableType() limits {
	kind := r.refType()
	l := r.limits()
	l.kind = kind
	return l
}

func (r *reader) memoryType() limits {
	at := r.offset()
	l := r.limits()
	if l.min > 1<<16 || l.max > 1<<16 {
		r.fail("the memory at offset %#x has more than 65536 pages", at)
	}
	return l
}

func (r *reader) limits() limits {
	at := r.offset()
	var l limits
	switch flags := r.byte(); {
	case flags <= 1:
		l.bounded = flags == 1
	case flags <= 3:
		r.unsupported("threads")
	case flags <= 7:
		r.unsupported("a 64-bit memory or table")
	case flags <= 15:
		r.unsupported("memories with another size of pages")
	default:
		r.fail("the limits at offset %#x are damaged", at)
	}
	l.min = r.u32()
	if l.bounded {
		l.max = r.u32()
	}
	if l.bounded && l.min > l.max {
		r.fail("the limits at offset %#x have a least of %d and a most of %d", at, l.min, l.max)
	}
	return l
}

func (r *reader) globalType() global {
	g := global{kind: r.valueType()}
	at := r.offset()
	switch mutable := r.byte(); mutable {
	case 0:
	case 1:
		g.mutable = true
	default:
		r.fail("the global at offset %#x is neither constant nor mutable", at)
	}
	return g
}

func (m *module) readGlobal(r *reader) {
	g := r.globalType()
	m.readConstant(r)
	m.globals = append(m.globals, g)
}

func (m *module) readExport(r *reader) {
	e := Export{Name: m.readName(r)}
	if strings.HasPrefix(e.Name, Prefix) {
		r.fail("it exports %q: names that begin with %q are reserved", e.Name, Prefix)
	}
	offset := r.offset()
	switch kind := r.byte(); kind {
	case 0:
		e.Kind = KindFunction
		index := r.index("function", len(m.funcs))
		if r.err != nil {
			return
		}
		e.Params, e.Results = m.types[m.funcs[index]].lists()
	case 1:
		e.Kind = KindTable
		r.index("table", m.tables)
	case 2:
		e.Kind = KindMemory
		r.index("memory", m.memories())
	case 3:
		e.Kind = KindGlobal
		r.index("global", len(m.globals))
	case 4:
		r.unsupported("exceptions")
	default:
		r.fail("the export at offset %#x is of the unknown kind %d", offset, kind)
	}
	m.exports = append(m.exports, e)
}

func (m *module) memories() int {
	if m.memory == nil {
		return 0
	}
	return 1
}

// checkMemoryExport refuses what would be in the way of exporting the memory.
func (m *module) checkMemoryExport(r *reader) {
	if e, taken := m.exportNamed("memory"); m.definesMemory && taken && e.Kind != KindMemory {
		r.fail("it exports a %s as \"memory\", the name under which its memory is to be exported", e.Kind)
	}
}

func (m *module) exportNamed(name string) (Export, bool) {
	i := slices.IndexFunc(m.exports, func(e Export) bool { return e.Name == name })
	if i < 0 {
		return Export{}, false
	}
	return m.exports[i], true
}
