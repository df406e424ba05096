package fuel_test

import "math/rand/v2"

// generator writes well-typed code at random. Each statement leaves the
// operand stack as it was, and each expression puts an i32 on it.
type generator struct {
	random *rand.Rand
	code   []instruction
	labels []byte // of each open block: how many values a branch to it carries
	room   int    // how many more statements and expressions there may be
}

func (g *generator) emit(op ...byte) { g.code = append(g.code, op) }

func (g *generator) n(below int) int { return g.random.IntN(below) }

func (g *generator) local() byte { return byte(g.n(4)) }

func (g *generator) statements(depth int) {
	for range 1 + g.n(4) {
		g.statement(depth - 1)
	}
}

func (g *generator) statement(depth int) {
	if g.room--; g.room < 0 || depth < 0 {
		g.emit(0x01)
		return
	}
	switch g.n(14) {
	case 0, 1, 2:
		g.expression(depth)
		g.emit(0x21, g.local())
	case 3:
		g.expression(depth)
		g.emit(0x24, 0)
	case 4:
		g.address(depth)
		g.expression(depth)
		g.emit(0x36, 2, 0)
	case 5:
		g.block(0x02, depth)
	case 6, 7:
		g.loop(depth)
	case 8, 9:
		g.condition(depth)
	case 10:
		g.branch(depth)
	case 11:
		g.branchTable(depth)
	case 12:
		g.bulk(depth)
	default:
		g.expression(depth)
		g.emit(0x1a)
	}
}

func (g *generator) block(op byte, depth int) {
	g.emit(op, 0x40)
	g.labels = append(g.labels, 0)
	g.statements(depth)
	g.labels = g.labels[:len(g.labels)-1]
	g.emit(0x0b)
}

// loop goes round while a local counts down, most of the time.
func (g *generator) loop(depth int) {
	g.emit(0x03, 0x40)
	g.labels = append(g.labels, 0)
	g.statements(depth)
	counter := g.local()
	g.emit(0x20, counter)
	g.emit(0x41, 1)
	g.emit(0x6b)
	g.emit(0x22, counter)
	g.emit(0x41, 7)
	g.emit(0x71)
	g.emit(0x0d, 0)
	g.labels = g.labels[:len(g.labels)-1]
	g.emit(0x0b)
}

func (g *generator) condition(depth int) {
	g.expression(depth)
	g.emit(0x04, 0x40)
	g.labels = append(g.labels, 0)
	g.statements(depth)
	if g.n(2) == 0 {
		g.emit(0x05)
		g.statements(depth)
	}
	g.labels = g.labels[:len(g.labels)-1]
	g.emit(0x0b)
}

// branch leaves a block, on a condition or not, or the function.
func (g *generator) branch(depth int) {
	to := g.n(len(g.labels))
	carries := g.labels[len(g.labels)-1-to] == 1
	if carries {
		g.expression(depth)
	}
	switch g.n(4) {
	case 0:
		g.emit(0x0c, byte(to))
	case 1:
		if carries && to == len(g.labels)-1 {
			g.emit(0x0f)
			return
		}
		g.emit(0x0c, byte(to))
	default:
		g.expression(depth)
		g.emit(0x0d, byte(to))
		if carries {
			g.emit(0x1a)
		}
	}
}

// branchTable chooses among the labels that carry nothing.
func (g *generator) branchTable(depth int) {
	var labels []byte
	for i := range g.labels {
		if g.labels[len(g.labels)-1-i] == 0 {
			labels = append(labels, byte(i))
		}
	}
	if len(labels) == 0 {
		return
	}
	g.expression(depth)
	table := []byte{0x0e, byte(len(labels))}
	table = append(table, labels...)
	g.emit(append(table, labels[g.n(len(labels))])...)
}

func (g *generator) bulk(depth int) {
	switch g.n(4) {
	case 0:
		g.address(depth)
		g.expression(depth)
		g.address(depth)
		g.emit(0xfc, 11, 0) // memory.fill
	case 1:
		g.address(depth)
		g.address(depth)
		g.address(depth)
		g.emit(0xfc, 10, 0, 0) // memory.copy
	case 2:
		g.expression(depth)
		g.emit(0x41, 1)
		g.emit(0x71)
		g.emit(0x40, 0) // memory.grow
		g.emit(0x1a)
	default:
		g.expression(depth)
		g.emit(0x04, 0x40)
		g.emit(0x00) // unreachable
		g.emit(0x0b)
	}
}

// address is an expression of less than 512.
func (g *generator) address(depth int) {
	g.expression(depth)
	g.emit(0x41, 0xff, 3)
	g.emit(0x71)
}

func (g *generator) expression(depth int) {
	if g.room--; g.room < 0 || depth <= 0 {
		g.leaf()
		return
	}
	switch g.n(12) {
	case 0, 1, 2:
		g.leaf()
	case 3, 4, 5:
		g.expression(depth - 1)
		g.expression(depth - 1)
		binary := []byte{0x46, 0x48, 0x6a, 0x6b, 0x6c, 0x6d, 0x70, 0x71, 0x73, 0x74, 0x77}
		g.emit(binary[g.n(len(binary))])
	case 6:
		g.address(depth - 1)
		g.emit(0x28, 2, 0)
	case 7:
		g.expression(depth - 1)
		g.expression(depth - 1)
		g.emit(0x10, byte(g.n(programFunctions)))
	case 8:
		g.expression(depth - 1)
		g.expression(depth - 1)
		g.leaf()
		g.emit(0x41, 3)
		g.emit(0x71)
		g.emit(0x11, 0, 0)
	case 9:
		g.emit(0x02, 0x7f) // a block with a result
		g.labels = append(g.labels, 1)
		g.statements(depth - 1)
		g.expression(depth - 1)
		g.labels = g.labels[:len(g.labels)-1]
		g.emit(0x0b)
	case 10:
		g.expression(depth - 1)
		g.emit(0x22, g.local())
	default:
		g.expression(depth - 1)
		g.expression(depth - 1)
		g.leaf()
		g.emit(0x1b)
	}
}

func (g *generator) leaf() {
	switch g.n(3) {
	case 0:
		g.code = append(g.code, i32const(int32(g.random.Uint32()>>g.n(32))))
	case 1:
		g.emit(0x23, 0)
	default:
		g.emit(0x20, g.local())
	}
}
