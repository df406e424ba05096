package fuel

// Helpers are functions that are appended to the rewritten module, of type i32 →
// i32. Each charges in proportion to its parameter and returns it.
const (
	chargeBytes = iota
	chargeElements
	chargePages
	helpers
)

var helperNames = [helpers]string{Prefix + "charge_bytes", Prefix + "charge_elements", Prefix + "charge_pages"}

// A unit is a power of two of bytes, elements or pages. No charge exceeds 2⁴⁶, and
// nothing is charged while the counter is below zero, so the counter never wraps
// around.
var helperShift = [helpers]struct{ op, by byte }{
	chargeBytes:    {0x88, 3},      // i64.shr_u
	chargeElements: {0x88, 0},      // i64.shr_u
	chargePages:    {0x86, 16 - 3}, // i64.shl
}

func (m *module) helper(i int) uint32 { return uint32(len(m.funcs) + i) }

func (m *module) addHelpers() {
	helperType := uint32(m.lists[sectionType].count)
	m.lists[sectionType].add(0x60, 1, byte(I32), 1, byte(I32))
	for i := range helpers {
		m.lists[sectionFunction].add(appendU32(nil, helperType)...)
		m.lists[sectionCode].add(m.helperBody(i)...)
	}
}

func (m *module) helperBody(i int) []byte {
	const noLocals = 0
	b := append([]byte{noLocals}, opGlobalGet)
	b = appendU32(b, m.fuelGlobal())
	b = append(b, opLocalGet, 0, opI64ExtendU, opI64Const, helperShift[i].by, helperShift[i].op, opI64Sub)
	b = m.appendCheck(b)
	b = append(b, opLocalGet, 0, opEnd)
	return append(appendU32(nil, uint32(len(b))), b...)
}

// appendCheck stores the counter from the operand stack, and traps if it is below
// zero.
func (m *module) appendCheck(b []byte) []byte {
	b = appendU32(append(b, opGlobalSet), m.fuelGlobal())
	b = appendU32(append(b, opGlobalGet), m.fuelGlobal())
	return append(b, opI64Const, 0, opI64LtS, opIf, emptyBlock, opUnreachable, opEnd)
}

// appendMark writes the code of a mark.
func (m *module) appendMark(b []byte, k mark) []byte {
	switch k.kind {
	case head, turn:
		b = appendU32(append(b, opGlobalGet), m.fuelGlobal())
		b = appendS64(append(b, opI64Const), k.cost)
		return m.appendCheck(append(b, opI64Sub))
	case size:
		return appendU32(append(b, opCall), m.helper(k.helper))
	case changed:
		return appendU32(append(b, opI32Const, 1, opGlobalSet), m.changedGlobal())
	default:
		return b
	}
}

// rewriteCode writes the code section, function by function.
func (m *module) rewriteCode() *RejectedError {
	code := &m.lists[sectionCode]
	var body []byte
	for i := range m.bodies {
		f := m.readFunctionBody(m.code, m.importedFuncs+i)
		if m.code.err != nil {
			return m.code.err
		}
		body = f.append(body[:0])
		code.entries = appendU32(code.entries, uint32(len(body)))
		code.add(body...)
	}
	if m.code.more() {
		m.code.fail("the code section has bytes left over at offset %#x", m.code.offset())
	}
	return m.code.err
}

// append writes the function with its marks.
func (f *function) append(b []byte) []byte {
	from := f.code
	b = f.appendLocals(b)
	for _, k := range f.marks {
		b = append(b, f.data[from:k.at]...)
		if k.kind == nan {
			b = f.appendCanonical(b, k.float)
		} else {
			b = f.module.appendMark(b, k)
		}
		from = k.at
	}
	return append(b, f.data[from:]...)
}
