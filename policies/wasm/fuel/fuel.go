// Package fuel instruments WebAssembly modules with fuel: the work of a module is
// counted in units of about one instruction, against a counter that the host sets,
// and the module traps when the counter drops below zero. The count depends on the
// module and its input only: it is the same on every machine.
//
// It also canonicalizes NaNs, so that they are the same on every machine: see
// nan.go.
//
// It reads and writes module binaries and does not run them. The engine validates
// the types of the rewritten module; rewriting never makes ill-typed code valid.
//
// One thing differs between machines: the depth at which nested calls exhaust the
// engine's stack, which depends on its machine code. A module with infinite
// recursion traps on every machine, at some depth, or runs out of fuel.
package fuel

import "fmt"

// Prefix is the prefix of the exports that are added for the host. Modules whose
// own exports have it are rejected.
const Prefix = "gleaner:"

// Names of exports that every rewritten module has.
const (
	// FuelGlobal is a mutable i64: the remaining fuel. The host sets it to zero or
	// more before each call, decreases it for its own work within a call, and must
	// not call again once it is negative. It is negative only if the fuel is used
	// up: the module's own unreachable instruction does not change it.
	FuelGlobal = Prefix + "fuel"
	// ChangedGlobal is a mutable i32, 0 until the module changes state that cannot
	// be restored from outside: a table, a passive segment, or a mutable global
	// that is not in Module.Globals.
	ChangedGlobal = Prefix + "changed"
)

// Options configure the rewriting.
type Options struct {
	Limits Limits
	// DefineMemory replaces an imported memory by one of the module's own, exported
	// as "memory".
	DefineMemory bool
	// MaxMemoryPages is the maximum size of the module's own memory in pages of 64
	// KiB, also after it has grown. Zero: no limit other than the module's.
	MaxMemoryPages uint32
	// ExtractData removes the active data segments: the host writes Module.Data into
	// the memory of new instances. Modules whose code refers to segments keep them.
	ExtractData bool
}

// Kind is the kind of an import or export.
type Kind string

// The kinds of imports and exports.
const (
	KindFunction Kind = "function"
	KindTable    Kind = "table"
	KindMemory   Kind = "memory"
	KindGlobal   Kind = "global"
)

// ValueType is the encoded type of a value.
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

// Import is an import of a module.
type Import struct {
	Module, Name    string
	Kind            Kind
	Params, Results []ValueType // of a function
}

// Export is an export of a module.
type Export struct {
	Name            string
	Kind            Kind
	Params, Results []ValueType // of a function
}

// Memory is a module's memory, in pages of 64 KiB.
type Memory struct {
	Imported bool // also after rewriting
	Min, Max uint32
}

// Module is a rewritten module.
type Module struct {
	Code    []byte   // without custom sections other than function names
	Imports []Import // in order; without a memory that DefineMemory replaced
	Exports []Export // of the original, in order
	// Start is the export of the original's start function, "" if there was none.
	// It no longer runs automatically, so that it can be called with fuel; it has
	// no parameters and results.
	Start string
	// Globals are the exports of the mutable globals, for snapshots. Vectors and
	// references are not included; setting one sets ChangedGlobal.
	Globals []string
	Memory  *Memory // nil if there is none
	// Data must be written into the memory of a new instance before anything runs,
	// in this order.
	Data []Segment
}

// Segment is a data segment with its address.
type Segment struct {
	Offset uint32
	Bytes  []byte
}

// RejectedError reports a module that is rejected. The module caused it.
type RejectedError struct {
	Message string
}

// Error implements error.
func (r *RejectedError) Error() string { return r.Message }

// Rewrite returns the instrumented module. The error is a *Refusal.
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
