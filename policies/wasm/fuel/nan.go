package fuel

// The bits of a NaN depend on the machine: 0/0 is negative on amd64 and positive on
// arm64, and an operation on two NaNs returns the first on one machine and the
// second on another. Modules can observe them. So code that replaces any NaN by the
// canonical NaN is added after each instruction that computes floats. Instructions
// that only move bits (loads, stores, constants, neg, abs, copysign) are the same
// everywhere, and are not changed.

// float is a type of floats that instructions compute with.
type float byte

const (
	noFloat float = iota
	float32s
	float64s
	float32x4
	float64x2
)

// nanCost is the cost of checking for a NaN, in units.
const nanCost = 2

// computesFloat returns the type of an instruction's result if it can be a
// machine-dependent NaN.
func computesFloat(op byte) float {
	switch {
	case op >= 0x8d && op <= 0x97, op == 0xb6: // f32.ceil … f32.max, f32.demote_f64
		return float32s
	case op >= 0x9b && op <= 0xa5, op == 0xbb: // f64.ceil … f64.max, f64.promote_f32
		return float64s
	default:
		return noFloat
	}
}

// computesFloats is computesFloat for vector instructions. pmin and pmax choose
// one of their operands.
func computesFloats(op uint32) float {
	switch {
	case op == 0x5e, op >= 0x67 && op <= 0x6a, op == 0xe3, op >= 0xe4 && op <= 0xe9:
		return float32x4 // demote, ceil … nearest, sqrt, add … max
	case op == 0x5f, op == 0x74, op == 0x75, op == 0x7a, op == 0x94, op == 0xef, op >= 0xf0 && op <= 0xf5:
		return float64x2
	default:
		return noFloat
	}
}

// absorbs reports whether the next instruction treats all NaNs in the same way, or
// makes another NaN of it, which is canonicalized then.
func (f *function) absorbs(result float) bool {
	if f.pos+1 >= len(f.data) {
		return false
	}
	next, after := f.data[f.pos], f.data[f.pos+1]
	switch result {
	case float32s:
		return computesFloat(next) == float32s && next != 0xb6 || next >= 0x5b && next <= 0x60 || // compare
			next == 0xa8 || next == 0xa9 || next == 0xae || next == 0xaf || next == 0xbb || // truncate, promote
			next == opDrop || next == opMisc && after <= miscLastTruncate
	case float64s:
		return computesFloat(next) == float64s && next != 0xbb || next >= 0x61 && next <= 0x66 ||
			next == 0xaa || next == 0xab || next == 0xb0 || next == 0xb1 || next == 0xb6 ||
			next == opDrop || next == opMisc && after <= miscLastTruncate
	default:
		return false
	}
}

// markFloatResult adds a mark after an instruction that computes floats.
func (f *function) markFloatResult(result float) {
	if result == noFloat || f.err != nil || f.absorbs(result) {
		return
	}
	f.charge(nanCost)
	f.marks[f.mark(nan, f.pos)].float = result
	f.scratch[scratchOf[result]].used = true
}

// scratch is a local that is added to a function.
type scratch struct {
	used  bool
	index uint32
}

// scratchOf is which of them is for which type, and scratchTypes what type it has.
var (
	scratchOf    = [...]int{float32s: 0, float64s: 1, float32x4: 2, float64x2: 2}
	scratchTypes = [...]ValueType{F32, F64, V128}
)

// appendLocals writes the function's locals, with those that it is given.
func (f *function) appendLocals(b []byte) []byte {
	groups, next := f.groups, uint32(f.effort.locals)
	var added []byte
	for i := range f.scratch {
		if s := &f.scratch[i]; s.used {
			s.index = next
			next++
			groups++
			added = append(added, 1, byte(scratchTypes[i]))
		}
	}
	b = appendU32(b, groups)
	b = append(b, f.data[f.groupsAt:f.code]...)
	return append(b, added...)
}

// The canonical NaNs, little endian, and how a value is compared with itself:
// only a NaN differs.
var canonical = [...]struct{ load, equal, choose []byte }{
	float32s:  {[]byte{opF32Const, 0, 0, 0xc0, 0x7f}, []byte{0x5b}, []byte{opSelect}},
	float64s:  {[]byte{opF64Const, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f}, []byte{0x61}, []byte{opSelect}},
	float32x4: {[]byte{opVector, vecConst, 0, 0, 0xc0, 0x7f, 0, 0, 0xc0, 0x7f, 0, 0, 0xc0, 0x7f, 0, 0, 0xc0, 0x7f}, []byte{opVector, 0x41}, []byte{opVector, vecBitselect}},
	float64x2: {[]byte{opVector, vecConst, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f}, []byte{opVector, 0x47}, []byte{opVector, vecBitselect}},
}

// appendCanonical replaces a NaN on the operand stack.
func (f *function) appendCanonical(b []byte, k float) []byte {
	local, c := f.scratch[scratchOf[k]].index, &canonical[k]
	b = appendU32(append(b, opLocalTee), local)
	b = append(b, c.load...)
	b = appendU32(append(b, opLocalGet), local)
	b = appendU32(append(b, opLocalGet), local)
	b = append(b, c.equal...)
	return append(b, c.choose...)
}
