package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// Instance is a guest: a module with a memory of its own. It belongs to one call
// at a time, and to that call's goroutine.
type Instance struct {
	pool    *Pool
	module  api.Module
	memory  memory // nil when the module has none
	left    api.MutableGlobal
	changed api.Global
	globals []api.MutableGlobal

	calls    int // of Pool.Run that it has been used for
	deadline time.Time
}

// instantiate returns an instance that has run nothing. Its memory is that of
// the image, if there is one, as soon as it has been restored.
func (p *Pool) instantiate(ctx context.Context, from *image) (*Instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("instantiate: %w", context.Cause(ctx))
	}
	in := &Instance{pool: p}
	allocate := func(_, _ uint64) experimental.LinearMemory {
		in.memory = newMemory(p.options.Limits.Memory, from)
		return in.memory
	}
	ctx = experimental.WithMemoryAllocator(context.WithoutCancel(ctx), experimental.MemoryAllocatorFunc(allocate))
	c := p.module.compiled
	var err error
	in.module, err = c.runtime.InstantiateModule(ctx, c.module, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		if in.memory != nil {
			in.memory.Free()
		}
		// Segments lie outside of its memory or tables: all else has been checked.
		return nil, &Refusal{Message: "it can't be instantiated: " + err.Error()}
	}
	in.left = in.module.ExportedGlobal(fuel.FuelGlobal).(api.MutableGlobal)
	in.changed = in.module.ExportedGlobal(fuel.ChangedGlobal)
	for _, name := range c.fuel.Globals {
		in.globals = append(in.globals, in.module.ExportedGlobal(name).(api.MutableGlobal))
	}
	return in, nil
}

// fill writes the module's data into the memory of an instance that is new.
func (in *Instance) fill(data []fuel.Segment) error {
	for i, s := range data {
		if !in.Write(s.Offset, s.Bytes) {
			return &Refusal{Message: fmt.Sprintf("it can't be instantiated: data segment %d, of %d bytes at %#x, lies outside of its memory of %d bytes",
				i, len(s.Bytes), s.Offset, in.MemorySize())}
		}
	}
	return nil
}

// initialize runs what has to come before any call.
func (in *Instance) initialize(ctx context.Context, _ *Instance) error {
	if start := in.pool.module.compiled.fuel.Start; start != "" {
		if _, err := in.Call(ctx, start); err != nil {
			return fmt.Errorf("start function: %w", err)
		}
	}
	if in.pool.options.Initialize == nil {
		return nil
	}
	return in.pool.options.Initialize(ctx, in)
}

type instanceKey struct{}

// run gives the guest its fuel while ask runs, and what is left of its time: making
// the instance is a part of the call that began then.
func (in *Instance) run(ctx context.Context, begun time.Time, ask func(ctx context.Context, in *Instance) error) error {
	limits := in.pool.options.Limits
	in.deadline = begun.Add(limits.Timeout)
	in.left.Set(uint64(limits.Fuel))
	return ask(context.WithValue(ctx, instanceKey{}, in), in)
}

// Call calls a function that the module exports. A host function may do so
// too, with the context that it was given. The error is a *Stopped when the
// guest is to blame, and wraps that of a host function which returned one.
func (in *Instance) Call(ctx context.Context, function string, args ...uint64) ([]uint64, error) {
	f := in.module.ExportedFunction(function)
	if f == nil {
		return nil, fmt.Errorf("call %s: the module exports no such function", function)
	}
	if int64(in.left.Get()) < 0 {
		return nil, in.exhausted(nil) // it must not run again
	}
	results, err := f.Call(ctx, args...)
	if err != nil {
		return nil, in.explain(err)
	}
	if int64(in.left.Get()) < 0 {
		return nil, in.exhausted(nil) // whoever used it up has kept it to himself
	}
	return results, nil
}

// Charge takes fuel for the host's work. Once it has returned an error, nothing
// is to be done but to return that.
func (in *Instance) Charge(units int64) error {
	left := int64(in.left.Get())
	if left < 0 || units < 0 || units > left {
		in.left.Set(^uint64(0))
		return in.exhausted(nil)
	}
	in.left.Set(uint64(left - units))
	return nil
}

// Read returns a part of the guest's memory, which is valid until the guest runs
// on or something is written there.
func (in *Instance) Read(at, length uint32) ([]byte, bool) {
	if in.memory == nil { // the engine's is not nil then, and can't be read
		return nil, length == 0 && at == 0
	}
	return in.module.Memory().Read(at, length)
}

// Write writes into the guest's memory, all of it or nothing.
func (in *Instance) Write(at uint32, data []byte) bool {
	if in.memory == nil {
		return len(data) == 0 && at == 0
	}
	return in.module.Memory().Write(at, data)
}

// MemorySize is the size of the guest's memory in bytes.
func (in *Instance) MemorySize() int {
	if in.memory == nil {
		return 0
	}
	return in.memory.size()
}

// used is how much fuel the current call has used.
func (in *Instance) used() int64 {
	return in.pool.options.Limits.Fuel - max(0, int64(in.left.Get()))
}

func (in *Instance) close() {
	// It frees memory, and has no files or other modules to close.
	_ = in.module.Close(context.Background())
}

// guarded is the function as the engine calls it. What it panics with comes out
// of the guest's call.
func (f Function) guarded() api.GoModuleFunc {
	return func(ctx context.Context, _ api.Module, stack []uint64) {
		in, ok := ctx.Value(instanceKey{}).(*Instance)
		if !ok {
			panic(errors.New("a guest was called outside of Pool.Run"))
		}
		err := in.punctual(ctx)
		if err == nil {
			err = f.Call(ctx, in, stack)
		}
		if err != nil {
			panic(&hostError{err})
		}
	}
}

// punctual looks at the clock, where a guest comes by.
func (in *Instance) punctual(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("call: %w", context.Cause(ctx))
	}
	if time.Now().After(in.deadline) {
		return &Stopped{
			Kind:    TimedOut,
			Message: fmt.Sprintf("it took longer than its timeout of %s", in.pool.options.Limits.Timeout),
		}
	}
	return nil
}
