// Package fuel rewrites WebAssembly modules so that they spend fuel: what a
// module does is counted in units of about one instruction each, against a
// counter that the host sets, and the module traps when the counter goes below
// zero. The count depends on the module and its input alone: it is the same on
// any machine.
//
// It also makes NaNs the same on any machine: see nan.go.
//
// It reads and writes module binaries and runs none. That a module's code is
// well typed is left to the engine, which judges the rewritten module; nothing
// that was ill typed becomes well typed by the rewriting.
//
// One thing it cannot make equal everywhere: how deep calls may nest before
// the engine's stack is used up, which depends on the machine code that the
// engine makes. A module that recurses without end traps on every machine, at
// one depth or another, or runs out of fuel.
package fuel

import "fmt"

// Prefix begins the names under which the rewritten module exports what the
// host needs. A module whose own exports begin so is refused.
const Prefix = "gleaner:"

// Names of exports that every rewritten module has.
const (
	// FuelGlobal is a mutable i64: the fuel left. The host sets it to zero or
	// more before each call, lowers it for the host's own work within a call,
	// and must not call again once it is below zero. Below zero means used up,
	// and nothing else leaves it there: the module's own unreachable does not.
	FuelGlobal = Prefix + "fuel"
	// ChangedGlobal is a mutable i32, 0 until the module changes something
	// that cannot be put back from outside: a table, a passive segment, or a
	// mutable global that is not listed in Module.Globals.
	ChangedGlobal = Prefix + "changed"
)

// Options say how to rewrite.
type Options struct {
	Limits Limits
	// DefineMemory makes a memory that is imported the module's own, exported
	// as "memory".
	DefineMemory bool
	// MaxMemoryPages is how many pages of 64 KiB the module's own memory may
	// have, also when it has grown. Zero leaves it to the module.
	MaxMemoryPages uint32
	// TakeData leaves out the data that is written into the memory when the
	// module is instantiated: it is Module.Data, for the host to write. A module
	// whose own code refers to its segments keeps them.
	TakeData bool
}

// Kind is what an import or export is.
type Kind string

// The kinds of imports and exports.
const (
	KindFunction Kind = "function"
	KindTable    Kind = "table"
	KindMemory   Kind = "memory"
	KindGlobal   Kind = "global"
)

// ValueType is the type of a value, as modules encode it.
type ValueType byte

// The types of values.
const (
	I32       ValueType = 0x7f
	I64       ValueType = 0x7e
	F32       ValueType = 0x7d
	F64       ValueType = 0x7c
	V128      ValueType = 0x7b
	FuncRef   ValueType = 0x70
	ExternRef ValueType = 0x6f
)

// String returns the name in the text format.
func (t ValueType) String() string {
	switch t {
	case I32:
		return "i32"
	case I64:
		return "i64"
	case F32:
		return "f32"
	case F64:
		return "f64"
	case V128:
		return "v128"
	case FuncRef:
		return "funcref"
	case ExternRef:
		return "externref"
	default:
		return fmt.Sprintf("type %#x", byte(t))
	}
}

// Import is what a module wants from another.
type Import struct {
	Module, Name    string
	Kind            Kind
	Params, Results []ValueType // of a function
}

// Export is what a module offers.
type Export struct {
	Name            string
	Kind            Kind
	Params, Results []ValueType // of a function
}

// Memory is a module's memory, in pages of 64 KiB.
type Memory struct {
	Imported bool // still, after the rewriting
	Min, Max uint32
}

// Module is a rewritten module.
type Module struct {
	Code    []byte   // without custom sections, but for the names of functions
	Imports []Import // in order; without the memory when DefineMemory took it
	Exports []Export // of the original, in order
	// Start is the name under which the function is exported that the original
	// ran when it was instantiated, "" if there was none. It is no longer run
	// by itself, so that it can be called under fuel; it has neither
	// parameters nor results.
	Start string
	// Globals are the names under which the mutable globals are exported, for
	// snapshots. One that is a vector or a reference is not among them; setting
	// it sets ChangedGlobal.
	Globals []string
	Memory  *Memory // nil when there is none
	// Data belongs into the memory of a new instance before anything of it runs,
	// in this order.
	Data []Segment
}

// Segment is data, and the address where it belongs.
type Segment struct {
	Offset uint32
	Bytes  []byte
}

// Refusal is a module that is not taken in. The module's author is to blame,
// and the message says for what.
type Refusal struct {
	Message string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Message }

// Rewrite returns the module that does as the given one, and spends fuel. An
// error is a *Refusal.
func Rewrite(code []byte, o Options) (Module, error) {
	o.Limits = o.Limits.withDefaults()
	m, refusal := read(code, o)
	if refusal != nil {
		return Module{}, refusal
	}
	if refusal := m.rewriteCode(); refusal != nil {
		return Module{}, refusal
	}
	return m.write(), nil
}
