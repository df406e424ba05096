package fuel

import (
	"fmt"
	"slices"
)

// Sections of a module, by the number they have in it.
const (
	sectionCustom    = 0
	sectionType      = 1
	sectionImport    = 2
	sectionFunction  = 3
	sectionTable     = 4
	sectionMemory    = 5
	sectionGlobal    = 6
	sectionExport    = 7
	sectionStart     = 8
	sectionElement   = 9
	sectionCode      = 10
	sectionData      = 11
	sectionDataCount = 12
	sectionTag       = 13
	sections         = 14
)

// order is the order of sections, which is not that of their numbers.
var order = []byte{
	sectionType, sectionImport, sectionFunction, sectionTable, sectionMemory, sectionGlobal, sectionExport,
	sectionStart, sectionElement, sectionDataCount, sectionCode, sectionData,
}

// signature is a function type. Its lists share the bytes of the original.
type signature struct {
	params, results []byte
	types           *signatureTypes
}

// signatureTypes are a signature's lists for those who ask for exports and
// imports, which share them: a type may be named as often as there are exports.
type signatureTypes struct {
	params, results []ValueType
}

type global struct {
	kind    ValueType
	mutable bool
}

// restorable reports whether the host can read and set the whole global.
func (g global) restorable() bool {
	return g.kind == I32 || g.kind == I64 || g.kind == F32 || g.kind == F64
}

// limits are the limits of a table or memory.
type limits struct {
	kind    ValueType // of a table's elements
	min     uint32
	max     uint32
	bounded bool // whether there is a max
}

// list is a section that is a list: how many entries, and their bytes.
type list struct {
	count   int
	entries []byte
}

func (l *list) add(entry ...byte) {
	l.count++
	l.entries = append(l.entries, entry...)
}

// module is the state of reading and rewriting a module.
type module struct {
	options         Options
	lists           [sections]list
	types           []signature
	imports         []Import
	exports         []Export
	funcs           []uint32 // the type of each function, those imported first
	importedFuncs   int      // how many of funcs
	globals         []global // those imported first
	importedGlobals int      // how many of globals are imported
	typeValues      int      // parameters and results of all types
	elements        int      // of all element segments
	nameBytes       int      // bytes of the names of imports and exports
	tables          int
	tableElements   int // elements of all tables, at first
	memory          *Memory
	// definesMemory reports whether an imported memory was replaced by the module's
	// own.
	definesMemory bool
	start         int // index of the start function; -1: none
	names         map[uint32]string
	code          *reader // entries of the code section, kept until everything else is read
	bodies        int
	data          []Segment // with keepsData, only as far as they are known
	keepsData     bool      // the data can't be moved out: see extractData
}

func read(code []byte, o Options) (*module, *RejectedError) {
	if len(code) > o.Limits.ModuleSize {
		r := &reader{}
		r.fail("it has %d bytes, which is over the limit of %d", len(code), o.Limits.ModuleSize)
		return nil, r.err
	}
	m := &module{options: o, start: -1, code: &reader{}}
	r := &reader{data: code}
	m.readHeader(r)
	last := -1
	for r.more() {
		at := r.offset()
		id := r.byte()
		part := r.part(r.u32())
		if id != sectionCustom {
			last = m.checkOrder(r, id, last, at)
		}
		if r.err != nil {
			break
		}
		m.readSection(id, part)
		r.takeError(part)
	}
	if r.err == nil && len(m.funcs)-m.importedFuncs != m.bodies {
		r.fail("the module is damaged: it declares %d functions and has code for %d", len(m.funcs)-m.importedFuncs, m.bodies)
	}
	m.checkMemoryExport(r)
	return m, r.err
}

func (m *module) readHeader(r *reader) {
	if len(r.data) < 8 || string(r.data[:4]) != "\x00asm" {
		r.fail("it is not a WebAssembly module")
		return
	}
	switch version := string(r.data[4:8]); version {
	case "\x01\x00\x00\x00":
		r.pos = 8
	case "\x0d\x00\x01\x00":
		r.fail("it is a WebAssembly component: a core module is needed")
	default:
		r.fail("it has an unknown version of the WebAssembly format")
	}
}

// checkOrder returns the position of a section in the order of sections, which must be
// after the last one.
func (m *module) checkOrder(r *reader, id byte, last, at int) int {
	place := slices.Index(order, id)
	switch {
	case id == sectionTag:
		r.unsupported("exceptions")
	case place < 0:
		r.fail("the section at offset %#x is of the unknown kind %d", at, id)
	case place == last:
		r.fail("the section at offset %#x repeats the one before it", at)
	case place < last:
		r.fail("the section at offset %#x is out of order", at)
	}
	return place
}

// readSection reads one section to its end.
func (m *module) readSection(id byte, r *reader) {
	switch id {
	case sectionCustom:
		m.readCustom(r)
	case sectionStart:
		m.readStart(r)
	case sectionDataCount:
		at := r.pos
		n := r.sectionCount("data segments", m.options.Limits.DataSegments)
		m.lists[id] = list{count: n, entries: r.data[at:r.pos]}
	case sectionCode:
		m.bodies = r.count("functions", m.options.Limits.Functions)
		m.code = &reader{data: r.data, pos: r.pos, base: r.base}
		return
	default:
		m.readList(id, r)
	}
	if r.more() {
		r.fail("the section that ends at offset %#x has bytes left over", r.base+len(r.data))
	}
}

func (m *module) readStart(r *reader) {
	m.start = int(r.index("function", len(m.funcs)))
	if r.err != nil {
		return
	}
	if s := m.types[m.funcs[m.start]]; len(s.params)+len(s.results) > 0 {
		r.fail("its start function has parameters or results")
	}
}

// readList reads a section that is a list, entry by entry.
func (m *module) readList(id byte, r *reader) {
	entry, what := m.readData, "data segments"
	limit := m.options.Limits.Entries
	if id == sectionData {
		limit = m.options.Limits.DataSegments
	}
	switch id {
	case sectionType:
		entry, what = m.readType, "types"
	case sectionImport:
		entry, what = m.readImport, "imports"
	case sectionFunction:
		entry, what, limit = m.readFunction, "functions", m.options.Limits.Functions
	case sectionTable:
		entry, what, limit = m.readTable, "tables", m.options.Limits.Tables
	case sectionMemory:
		entry, what = m.readMemory, "memories"
	case sectionGlobal:
		entry, what = m.readGlobal, "globals"
	case sectionExport:
		entry, what = m.readExport, "exports"
	case sectionElement:
		entry, what = m.readElement, "element segments"
	}
	n := r.count(what, limit)
	m.lists[id] = list{count: n, entries: r.data[min(r.pos, len(r.data)):]}
	if isRewritten(id) {
		m.lists[id] = list{}
	}
	for i := 0; i < n && r.err == nil; i++ {
		entry(r)
	}
}

// nameOf returns a function's name for messages: its index, and its name if it is
// known.
func (m *module) nameOf(index int) string {
	if name, ok := m.names[uint32(index)]; ok {
		return fmt.Sprintf("function %d (%q)", index, name)
	}
	return fmt.Sprintf("function %d", index)
}

// isRewritten reports whether the entries of a section are rewritten as they are read,
// because some of them change or are removed.
func isRewritten(id byte) bool {
	return id == sectionImport || id == sectionTable || id == sectionMemory
}
