package fuel

// operation reads what follows an instruction that computes, loads or stores.
func (f *function) operation(op byte, at int) {
	switch {
	case op == opDrop, op == opSelect, op == opRefIsNull:
	case op > opF64Const && op <= opLastNumeric:
		f.markFloatResult(computesFloat(op))
	case op == opSelectTyped:
		f.valueTypes("types of one select", f.module.options.Limits.Parameters)
	case op >= opLocalGet && op <= opLocalTee:
		f.index("local", int(f.effort.locals)) // the next is one that it may be given
	case op == opGlobalGet:
		f.index("global", len(f.module.globals))
	case op == opGlobalSet:
		f.setGlobal(at)
	case op == opTableGet:
		f.index("table", f.module.tables)
	case op == opTableSet:
		f.index("table", f.module.tables)
		f.mark(changed, at)
	case op >= opLoad && op <= opStore:
		f.memoryArgument()
	case op == opMemorySize:
		f.memoryIndex()
	case op == opMemoryGrow:
		f.memoryIndex()
		f.markSized(chargePages, at)
	case op == opRefNull:
		f.refType()
	case op == opRefFunc:
		f.index("function", len(f.module.funcs))
	case op == opMisc:
		f.misc(at)
	case op == opVector:
		f.vector()
	default:
		f.constant(op)
	}
}

func (f *function) constant(op byte) {
	switch op {
	case opI32Const:
		f.signed(32)
	case opI64Const:
		f.signed(64)
	case opF32Const:
		f.bytes(4)
	case opF64Const:
		f.bytes(8)
	default:
		f.unknown(op)
	}
}

// markSized marks an operation by whose last operand, a number of bytes, elements
// or pages, the helper charges.
func (f *function) markSized(helper, at int) {
	f.marks[f.mark(size, at)].helper = helper
}

func (f *function) setGlobal(at int) {
	i := f.index("global", len(f.module.globals))
	if f.err == nil && !f.module.globals[i].restorable() {
		f.mark(changed, at)
	}
}

func (f *function) memoryIndex() {
	if f.byte() != 0 {
		f.unsupported("multiple memories")
	}
}

func (f *function) memoryArgument() {
	const otherMemory = 0x40
	if f.u32()&otherMemory != 0 {
		f.unsupported("multiple memories")
	}
	f.u32()
}

// misc reads the instructions behind the prefix for those that came later:
// most of them work on whole ranges.
func (f *function) misc(at int) {
	switch op := f.u32(); op {
	case miscMemoryInit:
		f.u32()
		f.module.keepsData = true
		f.memoryIndex()
		f.bulk(chargeBytes, at)
	case miscMemoryCopy:
		f.memoryIndex()
		f.memoryIndex()
		f.bulk(chargeBytes, at)
	case miscMemoryFill:
		f.memoryIndex()
		f.bulk(chargeBytes, at)
	case miscDataDrop, miscElemDrop:
		f.u32()
		f.module.keepsData = f.module.keepsData || op == miscDataDrop
		f.mark(changed, at)
	case miscTableInit:
		f.u32()
		f.bulkTable(at)
	case miscTableCopy:
		f.index("table", f.module.tables)
		f.bulkTable(at)
	case miscTableGrow:
		f.charge(growCost)
		f.bulkTable(at)
	case miscTableFill:
		f.bulkTable(at)
	case miscTableSize:
		f.index("table", f.module.tables)
	default:
		if op > miscLastTruncate {
			f.fail("%s has an unknown instruction %#x %d before offset %#x", f.module.nameOf(f.number), opMisc, op, f.offset())
		}
	}
}

func (f *function) bulk(helper, at int) {
	f.charge(bulkCost)
	f.markSized(helper, at)
}

func (f *function) bulkTable(at int) {
	f.index("table", f.module.tables)
	f.mark(changed, at)
	f.bulk(chargeElements, at)
}

func (f *function) vector() {
	op := f.u32()
	switch {
	case op <= vecLastMemory, op == vecLoad32Zero, op == vecLoad64Zero:
		f.memoryArgument()
	case op == vecConst, op == vecShuffle:
		f.bytes(16)
	case op >= vecFirstLane && op <= vecLastLane:
		f.byte()
	case op >= vecFirstLaneIO && op <= vecLastLaneIO:
		f.memoryArgument()
		f.byte()
	case op > vecLast:
		f.unsupported("relaxed vector instructions")
	}
	f.charge(vectorCost(op))
	f.markFloatResult(computesFloats(op))
}
