package fuel

// A mark is a place in a function's code where something is to be written.
type mark struct {
	kind   markKind
	at     int   // offset in the body of what it is written before
	depth  int   // how many blocks there are around it
	cost   int64 // units that it charges
	parent int   // of a turn: the mark that pays when this one is left out
	helper int   // of a size: which helper
	float  float // of a nan: the type of what may be one
}

type markKind byte

const (
	// none is a mark left out: another one pays for it.
	none markKind = iota
	// head is where every call, or every round of a loop, comes by.
	head
	// turn is where code begins that may have been jumped over: an arm of an
	// if, or what follows a block that branches leave.
	turn
	// size is an operation whose operand says how much it does.
	size
	// changed is an operation that cannot be undone from outside.
	changed
	// nan is behind what may have left a NaN that differs between machines.
	nan
)

// smallTurn is how many units a turn has to be about to be worth a charge of
// its own. Fewer are charged with what comes before, taken or not. A stock Go
// guest is charged twice as much at 8, and saves little time by it.
const smallTurn = 4

// smallPrologue is how many units of straight code before a loop may be charged
// with each of its rounds, which saves the charge at the function's entry.
const smallPrologue = 32

// frame is a block that has been entered and not left.
type frame struct {
	op       byte
	outside  int // the mark that was current around it
	current  int // the mark that pays for what is read next
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
	straight  bool // neither block nor call so far
	effort    effort
	scratch   [3]scratch
}

// readFunctionBody reads the next entry of the code section.
func (m *module) readFunctionBody(r *reader, index int) *function {
	length := r.u32()
	if limit := m.options.Limits.FunctionSize; r.fault == nil && int64(length) > int64(limit) {
		r.fail("%s has %d bytes of code, which is over the limit of %d", m.nameOf(index), length, limit)
	}
	f := &function{
		reader: r.part(length), module: m, number: index, signature: m.types[m.funcs[index]],
		straight: true,
	}
	f.readLocals()
	f.readCode()
	r.adopt(f.reader)
	return f
}

// readLocals begins the first mark, which also pays for clearing the locals.
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

// readCode goes through the instructions once. Open blocks are on a stack of
// its own, so that a module cannot exhaust the host's by nesting.
func (f *function) readCode() {
	for len(f.frames) > 0 && f.fault == nil {
		at := f.pos
		op := f.byte()
		f.pay(cost(op))
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
	f.settle()
}

func (f *function) top() *frame { return &f.frames[len(f.frames)-1] }

func (f *function) pay(cost int64) { f.marks[f.top().current].cost += cost }

// mark begins a mark before the given offset and returns its index.
func (f *function) mark(kind markKind, at int) int {
	f.marks = append(f.marks, mark{kind: kind, at: at, depth: len(f.frames) - 1, parent: f.top().current})
	return len(f.marks) - 1
}

// control reads what follows an instruction that moves control.
func (f *function) control(op byte) {
	if op != opLoop && op != opNop {
		f.straight = false
	}
	switch op {
	case opUnreachable, opNop:
	case opBlock, opLoop, opIf:
		f.begin(op)
	case opElse:
		f.otherwise()
	case opEnd:
		f.end()
	case opBr, opBrIf:
		f.branch(f.label())
	case opBrTable:
		f.branchTable()
	case opReturn:
		f.pay(int64(len(f.signature.results)))
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

// branch pays for moving the values that a branch carries.
func (f *function) branch(label uint32) {
	target := f.target(label)
	target.branched = true
	f.effort.branches++
	f.effort.values += int64(target.arity)
	f.pay(int64(target.arity))
}

func (f *function) begin(op byte) {
	s := f.blockType()
	f.carry(s)
	f.effort.branches++
	outside := f.top().current
	f.frames = append(f.frames, frame{op: op, outside: outside, current: outside, arity: len(s.results)})
	switch op {
	case opLoop:
		f.pay(int64(len(s.params)))
		f.top().arity = len(s.params)
		f.beginLoop()
	case opIf:
		f.top().current = f.mark(turn, f.pos)
	}
}

// beginLoop lets the first loop pay for the function's entry where nothing but
// a little straight code lies between: most functions of a Go guest are one
// loop, and would otherwise pay twice for each call.
func (f *function) beginLoop() {
	f.effort.loops++
	i := f.mark(head, f.pos)
	f.marks[i].cost = 1
	f.top().current = i
	if entry := &f.marks[0]; f.straight && entry.cost <= smallPrologue {
		f.marks[i].cost += entry.cost
		entry.kind = none
		f.frames[0].current = i
	}
	f.straight = false
}

func (f *function) otherwise() {
	top := f.top()
	if top.op != opIf {
		f.fail("the code of %s has an else without an if, at offset %#x", f.module.nameOf(f.number), f.offset())
		return
	}
	top.op = opElse
	top.current = top.outside
	top.current = f.mark(turn, f.pos)
}

// end leaves a block. What follows is paid by what paid before it, or, if it
// may have been jumped to, by a turn of its own.
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
	if f.fault == nil {
		f.payCall(f.module.types[f.module.funcs[i]])
	}
}

func (f *function) callIndirect() {
	t := f.index("type", len(f.module.types))
	f.index("table", f.module.tables)
	if f.fault == nil {
		f.payCall(f.module.types[t])
	}
}

func (f *function) payCall(callee signature) {
	f.carry(callee)
	f.pay(int64(len(callee.results)))
}

// settle leaves out the marks that are not worth a charge of their own.
func (f *function) settle() {
	for i := len(f.marks) - 1; i > 0; i-- {
		if m := &f.marks[i]; m.kind == turn && m.cost < smallTurn {
			f.marks[m.parent].cost += m.cost
			m.kind = none
		}
	}
	if f.marks[0].cost <= tinyCost {
		f.marks[0].kind = none // callCost has paid for it, and for no call within it
	}
}

// unknown refuses an instruction, by the name of its feature if it has one.
func (f *function) unknown(op byte) {
	if feature := refused(op); feature != "" {
		f.unsupported(feature)
		return
	}
	f.fail("%s has an unknown instruction %#x at offset %#x", f.module.nameOf(f.number), op, f.offset()-1)
}

// unsupported refuses a feature by its name, and says where it is used.
func (f *function) unsupported(feature string) {
	f.fail("%s uses %s, which are not supported", f.module.nameOf(f.number), feature)
}
