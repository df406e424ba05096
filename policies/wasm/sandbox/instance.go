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

// Instance is a guest: a module with its own memory. It belongs to one call at a
// time, and to the goroutine of that call.
type Instance struct {
	pool     *Pool
	module   api.Module
	memory   memory // nil when the module has none
	fuelLeft api.MutableGlobal
	changed  api.Global
	globals  []api.MutableGlobal
	idle     functions

	calls    int // of Pool.Run with this instance
	deadline time.Time
}

// instantiate returns a new instance. If there is an image, it must be restored
// before its memory is that of the image.
func (p *Pool) instantiate(ctx context.Context, from *image) (*Instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("instantiate: %w", context.Cause(ctx))
	}
	in := &Instance{pool: p, idle: functions{}}
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
		// Segments are outside of its memory or tables: everything else was
		// validated.
		return nil, &RejectedError{Message: "it cannot be instantiated: " + err.Error()}
	}
	in.fuelLeft = in.module.ExportedGlobal(fuel.FuelGlobal).(api.MutableGlobal)
	in.changed = in.module.ExportedGlobal(fuel.ChangedGlobal)
	for _, name := range c.fuel.Globals {
		in.globals = append(in.globals, in.module.ExportedGlobal(name).(api.MutableGlobal))
	}
	return in, nil
}

// writeData writes the module's data into the memory of a new instance.
func (in *Instance) writeData(data []fuel.Segment) error {
	for i, s := range data {
		if !in.Write(s.Offset, s.Bytes) {
			return &RejectedError{Message: fmt.Sprintf("it cannot be instantiated: data segment %d, of %d bytes at %#x, is outside of its memory of %d bytes",
				i, len(s.Bytes), s.Offset, in.MemorySize())}
		}
	}
	return nil
}

// initialize runs the start function.
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

// run runs ask with the fuel of one call, and the rest of its time: creating the
// instance is part of the call.
func (in *Instance) run(ctx context.Context, begun time.Time, ask func(ctx context.Context, in *Instance) error) error {
	limits := in.pool.options.Limits
	in.deadline = begun.Add(limits.Timeout)
	in.fuelLeft.Set(uint64(limits.Fuel))
	return ask(context.WithValue(ctx, instanceKey{}, in), in)
}

// Call calls an exported function of the module. Host functions may use it as well,
// with their context. The error is a *Stopped if the guest caused it, and wraps the
// error of a host function.
func (in *Instance) Call(ctx context.Context, function string, args ...uint64) ([]uint64, error) {
	f := in.idle.take(in.module, function)
	if f == nil {
		return nil, fmt.Errorf("call %s: function is not exported", function)
	}
	if int64(in.fuelLeft.Get()) < 0 {
		return nil, in.exhausted(nil) // it must not run again
	}
	results, err := f.call.Call(ctx, args...)
	if err != nil {
		return nil, in.explain(err)
	}
	in.idle.give(function, f)
	if int64(in.fuelLeft.Get()) < 0 {
		return nil, in.exhausted(nil) // a host function ignored the error
	}
	return results, nil
}

// Charge charges fuel for work of the host. If it returns an error, the caller must
// return it.
func (in *Instance) Charge(units int64) error {
	left := int64(in.fuelLeft.Get())
	if left < 0 || units < 0 || units > left {
		in.fuelLeft.Set(^uint64(0))
		return in.exhausted(nil)
	}
	in.fuelLeft.Set(uint64(left - units))
	return nil
}

// Read returns a part of the guest's memory, which is valid until the guest runs or
// the memory is written.
func (in *Instance) Read(at, length uint32) ([]byte, bool) {
	if in.memory == nil { // the engine returns a non-nil memory that cannot be read
		return nil, length == 0 && at == 0
	}
	return in.module.Memory().Read(at, length)
}

// Write writes data to the guest's memory, all of it or nothing.
func (in *Instance) Write(at uint32, data []byte) bool {
	if in.memory == nil {
		return len(data) == 0 && at == 0
	}
	return in.module.Memory().Write(at, data)
}

// MemorySize returns the size of the guest's memory in bytes.
func (in *Instance) MemorySize() int {
	if in.memory == nil {
		return 0
	}
	return in.memory.size()
}

// used returns the fuel that the current call has used.
func (in *Instance) used() int64 {
	return in.pool.options.Limits.Fuel - max(0, int64(in.fuelLeft.Get()))
}

func (in *Instance) close() {
	// It frees memory, and has no files or other modules to close.
	_ = in.module.Close(context.Background())
}

// goFunction returns the function for the engine. Panics become the error of the
// guest's call.
func (f Function) goFunction() api.GoModuleFunc {
	return func(ctx context.Context, _ api.Module, stack []uint64) {
		in, ok := ctx.Value(instanceKey{}).(*Instance)
		if !ok {
			panic(errors.New("a guest was called outside of Pool.Run"))
		}
		err := in.checkTimeout(ctx)
		if err == nil {
			err = f.Call(ctx, in, stack)
		}
		if err != nil {
			panic(&hostError{err})
		}
	}
}

// checkTimeout checks the timeout, during host calls.
func (in *Instance) checkTimeout(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("call: %w", context.Cause(ctx))
	}
	if time.Now().After(in.deadline) {
		return &TrapError{
			Kind:    TimedOut,
			Message: fmt.Sprintf("it took longer than its timeout of %s", in.pool.options.Limits.Timeout),
		}
	}
	return nil
}
