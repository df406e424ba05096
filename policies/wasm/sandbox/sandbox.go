// Package sandbox runs untrusted WebAssembly modules with bounded work, memory and
// time. They can only call the functions that they are given. Every call starts
// from the same state and uses the same fuel for the same input, on any machine.
//
// It does not depend on an ABI: the packages above define the input, the imports
// and the output.
// means is up to the packages above.
package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// Config is the configuration of a Host.
type Config struct {
	// CacheDir is the folder of compiled modules. Empty: no cache. No other user
	// may have access to it, since its content is executed. Damaged files are compiled
	// again.
	CacheDir string

	// Functions are what modules may import.
	Functions []Function

	// DefineMemory gives a module that imports a memory one of its own instead.
	DefineMemory bool

	// Limits bound the modules that are loaded. Zero fields mean the default.
	Limits fuel.Limits

	// CompileTimeout is the timeout for compiling a module. Default: 1m.
	CompileTimeout time.Duration
}

// Function is a host function that modules may import.
type Function struct {
	Module, Name    string
	Params, Results []api.ValueType

	// Call implements the function. The parameters are on the stack, and the
	// results replace them. It must charge for its work by Instance.Charge in
	// advance. An error ends the guest's call, and is returned by it.
	Call func(ctx context.Context, in *Instance, stack []uint64) error
}

// Limits bound each call of a pool's guests, and their initialization separately.
// Fuel is what stops a guest: nothing else can interrupt its own code, and the
// garbage collector of this process has to wait for it.
type Limits struct {
	Fuel    int64         // units of about one instruction; default DefaultFuel, at most MaxFuel
	Memory  int64         // bytes of linear memory; default DefaultMemory, at most MaxMemory; whole pages of 64 KiB count
	Timeout time.Duration // wall clock, checked during host calls; default DefaultTimeout, at most MaxTimeout
}

// The default limits. A stock Go guest uses about five units per nanosecond, and
// 700,000 for a small request.
const (
	DefaultFuel    = 250_000_000
	DefaultMemory  = 64 << 20
	DefaultTimeout = 2 * time.Second
)

// The maximum limits. They also apply to objects that were stored before the API
// server rejected more. A module runs without interruption until its fuel is used
// up, so MaxFuel bounds the time until only killing the process can stop it. A unit
// takes 0.2 ns in an ordinary module, and 30 ns in one that only waits for memory:
// MaxFuel is what the latter can use in MaxTimeout.
const (
	MaxFuel             = 4 * DefaultFuel
	MaxMemory           = 512 << 20
	MaxNamespacedMemory = 64 << 20 // for modules in namespaces
	MaxTimeout          = 30 * time.Second
)

const pageSize = 64 << 10

// WithDefaults returns the limits with defaults instead of zeros.
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

// Validate reports limits that are out of range.
func (l Limits) Validate() error {
	switch {
	case l.Fuel < 0 || l.Fuel > MaxFuel:
		return fmt.Errorf("fuel is %d: it must be greater than 0 and at most %d", l.Fuel, int64(MaxFuel))
	case l.Memory != 0 && (l.Memory < pageSize || l.Memory > MaxMemory):
		return fmt.Errorf("memory is %d bytes: it must be from %s to %s", l.Memory, formatBytes(pageSize), formatBytes(MaxMemory))
	case l.Timeout < 0 || l.Timeout > MaxTimeout:
		return fmt.Errorf("timeout is %s: it must be greater than 0 and at most %s", l.Timeout, MaxTimeout)
	}
	return nil
}

// RejectedError reports a module that is never run. The module caused it. The message
// completes a sentence about the module.
type RejectedError struct {
	Message string
}

// Error implements error.
func (r *RejectedError) Error() string { return r.Message }

// Kind is why a guest was stopped.
type Kind string

// The kinds.
const (
	FuelExhausted Kind = "Exhausted" // it used up its fuel
	MemoryLimit   Kind = "NoMemory"  // it failed after it exceeded its memory limit
	TimedOut      Kind = "TimedOut"  // it took longer than its timeout
	Trapped       Kind = "Trapped"   // it trapped or aborted
)

// TrapError reports a guest whose call did not complete. The module caused it.
type TrapError struct {
	Kind    Kind
	Message string   // completes a sentence about the module
	Trace   []string // functions that were running, the innermost first
}

// Error implements error.
func (s *TrapError) Error() string {
	if len(s.Trace) == 0 {
		return s.Message
	}
	return s.Message + ", in " + joinTrace(s.Trace)
}
