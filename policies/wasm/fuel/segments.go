package fuel

// readConstant reads a constant expression. The engine validates its type; here
// only its indexes are checked.
func (m *module) readConstant(r *reader) {
	for r.err == nil {
		at := r.offset()
		switch op := r.byte(); op {
		case opEnd:
			return
		case opI32Const:
			r.signed(32)
		case opI64Const:
			r.signed(64)
		case opF32Const:
			r.bytes(4)
		case opF64Const:
			r.bytes(8)
		case opGlobalGet:
			if i := r.index("global", m.importedGlobals); r.err == nil && m.globals[i].mutable {
				r.fail("the expression at offset %#x is not constant", at)
			}
		case opRefNull:
			r.refType()
		case opRefFunc:
			r.index("function", len(m.funcs))
		case opVector:
			if r.u32() != vecConst {
				r.fail("the expression at offset %#x is not constant", at)
			}
			r.bytes(16)
		case 0x6a, 0x6b, 0x6c, opI64Add, opI64Sub, opI64Mul:
			r.unsupported("extended constant expressions")
		default:
			r.fail("the expression at offset %#x is not constant", at)
		}
	}
}

// Bits of the number that an element segment begins with.
const (
	elementNotActive   = 1
	elementExplicit    = 2 // the table of an active one; of another: only declares
	elementExpressions = 4
)

func (m *module) readElement(r *reader) {
	at := r.offset()
	flags := r.u32()
	if flags > 7 {
		r.fail("the element segment at offset %#x is of an unknown kind", at)
		return
	}
	if flags&elementNotActive == 0 {
		if flags&elementExplicit != 0 {
			r.index("table", m.tables)
		}
		m.readConstant(r)
	}
	if flags&(elementNotActive|elementExplicit) != 0 {
		if flags&elementExpressions != 0 {
			r.refType()
		} else if r.byte() != 0 {
			r.fail("the element segment at offset %#x is of an unknown kind", at)
		}
	}
	n := r.count("elements in one segment", m.options.Limits.TableElements)
	m.elements += n
	r.checkLimit("elements in its segments", m.elements, m.options.Limits.TableElements)
	for i := 0; i < n && r.err == nil; i++ {
		if flags&elementExpressions != 0 {
			m.readConstant(r)
		} else {
			r.index("function", len(m.funcs))
		}
	}
}

func (m *module) readData(r *reader) {
	at := r.offset()
	s, plain := Segment{}, false
	switch flags := r.u32(); flags {
	case 0:
		s.Offset, plain = m.readOffset(r)
	case 1:
	case 2:
		r.index("memory", m.memories())
		s.Offset, plain = m.readOffset(r)
	default:
		r.fail("the data segment at offset %#x is of an unknown kind", at)
	}
	s.Bytes = r.bytes(r.u32())
	m.data = append(m.data, s)
	m.keepsData = m.keepsData || !plain
}

// readOffset reads the offset of a segment, and reports whether it is a plain
// number.
func (m *module) readOffset(r *reader) (offset uint32, plain bool) {
	at := r.pos
	m.readConstant(r)
	if r.err != nil {
		return 0, false
	}
	expression := &reader{data: r.data[at:r.pos]}
	if expression.byte() != opI32Const {
		return 0, false
	}
	offset = uint32(expression.signed(32))
	return offset, expression.byte() == opEnd && !expression.more()
}

// extractData removes the data from the module, if its code does not refer to it. The
// segments are copied, so that they do not keep the original in memory.
func (m *module) extractData() []Segment {
	if !m.options.ExtractData || m.keepsData || m.memory == nil || m.memory.Imported {
		return nil
	}
	if announced := m.lists[sectionDataCount]; announced.entries != nil && announced.count != len(m.data) {
		return nil // the engine refuses it for that
	}
	m.lists[sectionData], m.lists[sectionDataCount] = list{}, list{}
	size := 0
	for _, s := range m.data {
		size += len(s.Bytes)
	}
	room := make([]byte, 0, size)
	for i, s := range m.data {
		at := len(room)
		room = append(room, s.Bytes...)
		m.data[i].Bytes = room[at:len(room):len(room)]
	}
	return m.data
}

// readCustom keeps function names, for readable traces. Invalid, duplicate or too
// many names are dropped, and do not cause a rejection.
func (m *module) readCustom(r *reader) {
	isNames := r.name() == "name"
	part := &reader{data: r.data, pos: r.pos, base: r.base}
	r.pos = len(r.data)
	if r.err == nil && isNames {
		m.readNames(part)
	}
}

func (m *module) readNames(part *reader) {
	names := map[uint32]string{}
	for part.more() {
		const functionNames = 1
		id := part.byte()
		subsection := part.part(part.u32())
		if id == functionNames {
			m.readNameMap(subsection, names)
		}
		part.takeError(subsection)
	}
	if part.err == nil {
		m.names = names
	}
}

// readNameMap reads names in the order of their functions, as they have to be.
func (m *module) readNameMap(r *reader, names map[uint32]string) {
	n := r.count("names", m.options.Limits.Functions)
	if len(r.data)-r.pos > m.options.Limits.Names {
		r.fail("the names of its functions have more than %d bytes", m.options.Limits.Names)
	}
	next := uint32(0)
	for range n {
		i := r.u32()
		name := r.name()
		if r.err != nil {
			return
		}
		if i < next {
			r.fail("the names of its functions are out of order")
			return
		}
		next = i + 1
		names[i] = name
	}
}
