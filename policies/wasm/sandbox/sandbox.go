// Package sandbox runs WebAssembly modules that nobody vouches for: with a
// bounded amount of work, memory and time, with nothing in reach but the
// functions that it is given, and so that every call starts from the same state
// and spends the same fuel for the same question, on any machine.
//
// It knows no ABI. What a module is asked, what it may import and what an answer
// means is up to the packages above.
package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// Config is what all modules of a Host have in common.
type Config struct {
	// CacheDir keeps compiled modules between runs of the program. Empty: none
	// are kept. It must be in nobody else's reach: what it holds is executed. A
	// file that has been damaged is compiled anew.
	CacheDir string

	// Functions are what modules may import.
	Functions []Function

	// DefineMemory gives a module that imports a memory one of its own instead.
	DefineMemory bool

	// Limits bound what is taken in. Zero fields mean the default.
	Limits fuel.Limits

	// CompileTimeout is how long a module may take to compile. Default: 1m.
	CompileTimeout time.Duration
}

// Function is a host function that modules may import.
type Function struct {
	Module, Name    string
	Params, Results []api.ValueType

	// Call does it. The parameters are on the stack, and the results belong
	// there in their place. It charges for its work by Instance.Charge before
	// it does it. An error ends the guest's call, and comes out of it.
	Call func(ctx context.Context, in *Instance, stack []uint64) error
}

// Limits bound each call of a pool's guests, and their initialisation, on its
// own. What stops a guest is its fuel: while it runs its own code, nothing else
// can, and the garbage collector of this process has to wait for it.
type Limits struct {
	Fuel    int64         // units of about one instruction; default DefaultFuel, at most MaxFuel
	Memory  int64         // bytes of linear memory; default DefaultMemory, at most MaxMemory; whole pages of 64 KiB count
	Timeout time.Duration // wall clock, seen at calls of the host; default DefaultTimeout, at most MaxTimeout
}

// The limits that hold where none is set. A stock Go guest uses about five units
// in a nanosecond, and 700,000 to answer a small request.
const (
	DefaultFuel    = 250_000_000
	DefaultMemory  = 64 << 20
	DefaultTimeout = 2 * time.Second
)

// The maximums. They also hold for objects that were stored before the API server
// refused more. A module runs its own code without a pause until its fuel is used
// up, so MaxFuel bounds how long nothing but killing the process can stop it. A
// unit takes 0.2 ns in an ordinary module, and 30 ns in one that does nothing but
// wait for memory: MaxFuel is what the latter can use in MaxTimeout.
const (
	MaxFuel             = 4 * DefaultFuel
	MaxMemory           = 512 << 20
	MaxNamespacedMemory = 64 << 20 // of a module that belongs to a namespace
	MaxTimeout          = 30 * time.Second
)

const pageSize = 64 << 10

// WithDefaults returns the limits with defaults in place of zeros.
func (l Limits) WithDefaults() Limits {
	if l.Fuel == 0 {
		l.Fuel = DefaultFuel
	}
	if l.Memory == 0 {
		l.Memory = DefaultMemory
	}
	if l.Timeout == 0 {
		l.Timeout = DefaultTimeout
	}
	l.Memory -= l.Memory % pageSize
	return l
}

// Validate returns what is out of range.
func (l Limits) Validate() error {
	switch {
	case l.Fuel < 0 || l.Fuel > MaxFuel:
		return fmt.Errorf("fuel is %d: it must be above 0 and at most %d", l.Fuel, int64(MaxFuel))
	case l.Memory != 0 && (l.Memory < pageSize || l.Memory > MaxMemory):
		return fmt.Errorf("memory is %d bytes: it must be from %s to %s", l.Memory, bytesText(pageSize), bytesText(MaxMemory))
	case l.Timeout < 0 || l.Timeout > MaxTimeout:
		return fmt.Errorf("timeout is %s: it must be above 0 and at most %s", l.Timeout, MaxTimeout)
	}
	return nil
}

// Refusal is a module that is not run at all. Its author is to blame, and the
// message says for what, as the rest of a sentence about the module.
type Refusal struct {
	Message string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Message }

// Kind is why a guest was stopped.
type Kind string

// Why a guest is stopped.
const (
	Exhausted Kind = "Exhausted" // it used up its fuel
	NoMemory  Kind = "NoMemory"  // it ended after it had been refused more memory
	TimedOut  Kind = "TimedOut"  // it took longer than its timeout
	Trapped   Kind = "Trapped"   // it did what no module can do, or gave up
)

// Stopped is a guest that did not come to the end of its call by its own doing.
// Its author is to blame.
type Stopped struct {
	Kind    Kind
	Message string   // the rest of a sentence about the module
	Trace   []string // functions that were running, the innermost first
}

// Error implements error.
func (s *Stopped) Error() string {
	if len(s.Trace) == 0 {
		return s.Message
	}
	return s.Message + ", in " + joinTrace(s.Trace)
}
