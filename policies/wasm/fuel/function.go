package fuel

// mark is a position in a function's code at which code is inserted.
type mark struct {
	kind   markKind
	at     int   // offset in the body; the code is inserted before it
	depth  int   // how many blocks there are around it
	cost   int64 // units that it charges
	parent int   // of a turn: the mark that is charged instead if this one is omitted
	helper int   // of a size: which helper
	float  float // of a nan: the type of what may be one
}

type markKind byte

const (
	// none is an omitted mark: another one charges for it.
	none markKind = iota
	// head is executed on every call, or in every iteration of a loop.
	head
	// turn is the start of code that may be skipped: an arm of an if, or code after
	// a block that branches can leave.
	turn
	// size is an operation whose operand determines its cost.
	size
	// changed is an operation that cannot be undone from outside.
	changed
	// nan follows an instruction whose result may be a NaN that differs between
	// machines.
	nan
)

// minBranchCost is the minimum cost of a turn for a charge of its own. Lower costs are
// charged in advance, executed or not. At 8, a stock Go guest is charged twice as
// much, and saves little time.
const minBranchCost = 4

// maxPrologueCost is the maximum cost of straight code before a loop that may be
// charged in each iteration, which saves the charge at the function's entry.
const maxPrologueCost = 32

// frame is an open block.
type frame struct {
	op       byte
	outside  int // the current mark outside of it
	current  int // the mark that the next instructions are charged to
	arity    int // how many values a branch to it carries
	branched bool
}

// function is a function's code as it is read.
type function struct {
	*reader
	module    *module
	number    int // among the functions
	signature signature
	groups    uint32 // of locals
	groupsAt  int    // offset of the first of them
	code      int    // offset of the first instruction; before it are the locals
	marks     []mark
	frames    []frame
	straight  bool // no block or call so far
	effort    effort
	scratch   [3]scratch
}

// readFunctionBody reads the next entry of the code section.
func (m *module) readFunctionBody(r *reader, index int) *function {
	length := r.u32()
	if limit := m.options.Limits.FunctionSize; r.err == nil && int64(length) > int64(limit) {
		r.fail("%s has %d bytes of code, which is over the limit of %d", m.nameOf(index), length, limit)
	}
	f := &function{
		reader: r.part(length), module: m, number: index, signature: m.types[m.funcs[index]],
		straight: true,
	}
	f.readLocals()
	f.readCode()
	r.takeError(f.reader)
	return f
}

// readLocals creates the first mark, which also charges for clearing the locals.
func (f *function) readLocals() {
	limit := f.module.options.Limits.Locals
	total := uint64(len(f.signature.params))
	f.groups = uint32(f.count("groups of locals in one function", limit))
	f.groupsAt = f.pos
	for range f.groups {
		total += f.unsigned(32)
		f.valueType()
	}
	if total > uint64(limit) {
		f.fail("%s has %d locals, which is over the limit of %d", f.module.nameOf(f.number), total, limit)
	}
	f.effort.locals = int64(total)
	f.code = f.pos
	f.marks = append(f.marks, mark{kind: head, at: f.pos, cost: int64(total)})
	f.frames = append(f.frames, frame{op: opBlock, arity: len(f.signature.results)})
}

// readCode reads the instructions once. Open blocks are on an explicit stack, so
// that nesting cannot exhaust the host's stack.
func (f *function) readCode() {
	for len(f.frames) > 0 && f.err == nil {
		at := f.pos
		op := f.byte()
		f.charge(cost(op))
		if op < opDrop {
			f.control(op)
		} else {
			f.operation(op, at)
		}
	}
	if f.more() {
		f.fail("the code of %s goes on after its end, at offset %#x", f.module.nameOf(f.number), f.offset())
	}
	f.checkEffort()
	f.mergeMarks()
}

func (f *function) top() *frame { return &f.frames[len(f.frames)-1] }

func (f *function) charge(cost int64) { f.marks[f.top().current].cost += cost }

// mark adds a mark before the given offset and returns its index.
func (f *function) mark(kind markKind, at int) int {
	f.marks = append(f.marks, mark{kind: kind, at: at, depth: len(f.frames) - 1, parent: f.top().current})
	return len(f.marks) - 1
}

// control reads the operands of a control instruction.
func (f *function) control(op byte) {
	if op != opLoop && op != opNop {
		f.straight = false
	}
	switch op {
	case opUnreachable, opNop:
	case opBlock, opLoop, opIf:
		f.begin(op)
	case opElse:
		f.elseBranch()
	case opEnd:
		f.end()
	case opBr, opBrIf:
		f.branch(f.label())
	case opBrTable:
		f.branchTable()
	case opReturn:
		f.charge(int64(len(f.signature.results)))
	case opCall:
		f.call()
	case opCallIndirect:
		f.callIndirect()
	default:
		f.unknown(op)
	}
}

func (f *function) label() uint32 { return f.index("label", len(f.frames)) }

func (f *function) target(label uint32) *frame { return &f.frames[len(f.frames)-1-int(label)] }

func (f *function) branchTable() {
	for range f.count("targets of one branch", f.module.options.Limits.Branches) {
		target := f.target(f.label())
		target.branched = true
		f.effort.branches++
		f.effort.values += int64(target.arity)
	}
	f.branch(f.label())
}

// branch charges for moving the values of a branch.
func (f *function) branch(label uint32) {
	target := f.target(label)
	target.branched = true
	f.effort.branches++
	f.effort.values += int64(target.arity)
	f.charge(int64(target.arity))
}

func (f *function) begin(op byte) {
	s := f.blockType()
	f.countValues(s)
	f.effort.branches++
	outside := f.top().current
	f.frames = append(f.frames, frame{op: op, outside: outside, current: outside, arity: len(s.results)})
	switch op {
	case opLoop:
		f.charge(int64(len(s.params)))
		f.top().arity = len(s.params)
		f.beginLoop()
	case opIf:
		f.top().current = f.mark(turn, f.pos)
	}
}

// beginLoop merges the function's entry into its first loop if only a little
// straight code is between them: most functions of a Go guest are one loop, and
// would otherwise be charged twice per call.
func (f *function) beginLoop() {
	f.effort.loops++
	i := f.mark(head, f.pos)
	f.marks[i].cost = 1
	f.top().current = i
	if entry := &f.marks[0]; f.straight && entry.cost <= maxPrologueCost {
		f.marks[i].cost += entry.cost
		entry.kind = none
		f.frames[0].current = i
	}
	f.straight = false
}

func (f *function) elseBranch() {
	top := f.top()
	if top.op != opIf {
		f.fail("the code of %s has an else without an if, at offset %#x", f.module.nameOf(f.number), f.offset())
		return
	}
	top.op = opElse
	top.current = top.outside
	top.current = f.mark(turn, f.pos)
}

// end closes a block. Code after it is charged to the previous mark, or, if it may
// be a branch target, to a turn of its own.
func (f *function) end() {
	left := *f.top()
	f.frames = f.frames[:len(f.frames)-1]
	if len(f.frames) == 0 {
		return
	}
	merged := left.op == opLoop && f.top().current != left.outside
	if merged || left.op != opLoop && left.branched {
		f.top().current = f.mark(turn, f.pos)
	}
}

func (f *function) blockType() signature {
	at := f.offset()
	switch t := f.signed(33); {
	case t >= 0:
		if t >= int64(len(f.module.types)) {
			f.fail("at offset %#x it uses type %d, and has only %d", at, t, len(f.module.types))
			return signature{}
		}
		return f.module.types[t]
	case t == emptyBlock-0x80:
		return signature{}
	default:
		f.pos--
		f.valueType()
		return signature{results: f.data[max(0, f.pos-1):f.pos]}
	}
}

func (f *function) call() {
	i := f.index("function", len(f.module.funcs))
	if f.err == nil {
		f.chargeCall(f.module.types[f.module.funcs[i]])
	}
}

func (f *function) callIndirect() {
	t := f.index("type", len(f.module.types))
	f.index("table", f.module.tables)
	if f.err == nil {
		f.chargeCall(f.module.types[t])
	}
}

func (f *function) chargeCall(callee signature) {
	f.countValues(callee)
	f.charge(int64(len(callee.results)))
}

// mergeMarks omits the marks that are not worth a charge of their own.
func (f *function) mergeMarks() {
	for i := len(f.marks) - 1; i > 0; i-- {
		if m := &f.marks[i]; m.kind == turn && m.cost < minBranchCost {
			f.marks[m.parent].cost += m.cost
			m.kind = none
		}
	}
	if f.marks[0].cost <= tinyCost {
		f.marks[0].kind = none // callCost includes it, and it has no calls
	}
}

// unknown rejects an instruction, with the name of its feature if it has one.
func (f *function) unknown(op byte) {
	if feature := unsupportedFeature(op); feature != "" {
		f.unsupported(feature)
		return
	}
	f.fail("%s has an unknown instruction %#x at offset %#x", f.module.nameOf(f.number), op, f.offset()-1)
}

// unsupported rejects a feature.
func (f *function) unsupported(feature string) {
	f.fail("%s uses %s, which are not supported", f.module.nameOf(f.number), feature)
}
