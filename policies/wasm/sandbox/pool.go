package sandbox

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// PoolOptions configure a pool.
type PoolOptions struct {
	Limits Limits

	// Instances is how many guests may run at the same time; others wait.
	// Default: one for each core, and at least two.
	Instances int

	// Initialize, if it is not nil, brings a new instance to its initial state,
	// after the module's start function. It must do the same each time. It is
	// called with the limits of a call.
	Initialize func(ctx context.Context, in *Instance) error
}

// Pool contains the guests of one policy, which only share code with those of
// others. Every call starts from the state after initialization, however often the
// guest has been used.
type Pool struct {
	module  *Module
	options PoolOptions
	image   *image // nil if instances cannot be restored and are used once

	// InitFuel is the fuel that initialization used.
	InitFuel int64

	slots  chan struct{} // one element for each running guest
	closed chan struct{} // closed by Close

	lock sync.Mutex // protects the following fields
	idle []*Instance
}

// Usage is the resource usage of a call.
type Usage struct {
	Fuel     int64         // units
	Memory   int64         // bytes of the guest's memory at the end
	Elapsed  time.Duration // including creating an instance, excluding waiting for a free one
	Restored bool          // the guest had been used before
}

// NewPool initializes a first instance, and saves its state. The error is a
// *Refusal or *Stopped if the module caused it, or the error of Initialize.
func (m *Module) NewPool(ctx context.Context, o PoolOptions) (*Pool, error) {
	if err := o.Limits.Validate(); err != nil {
		return nil, &RejectedError{Message: "invalid limits: " + err.Error()}
	}
	o.Limits = o.Limits.WithDefaults()
	if o.Instances == 0 {
		o.Instances = max(2, runtime.GOMAXPROCS(0))
	}
	if memory := m.compiled.fuel.Memory; memory != nil && int64(memory.Min)*pageSize > o.Limits.Memory {
		return nil, &RejectedError{Message: fmt.Sprintf("its initial memory of %s exceeds its limit of %s",
			formatBytes(int64(memory.Min)*pageSize), formatBytes(o.Limits.Memory))}
	}
	p := &Pool{module: m, options: o, slots: make(chan struct{}, o.Instances), closed: make(chan struct{})}
	in, err := p.initialized(ctx)
	if err != nil {
		return nil, err
	}
	defer in.close()
	p.InitFuel = in.used()
	if p.image, err = in.snapshot(); err != nil {
		return nil, err
	}
	return p, nil
}

// Run runs ask with exclusive use of a guest, with the fuel and time of one call.
// It waits until a guest is free or the context is done.
func (p *Pool) Run(ctx context.Context, ask func(ctx context.Context, in *Instance) error) (Usage, error) {
	if err := ctx.Err(); err != nil {
		return Usage{}, fmt.Errorf("begin call: %w", context.Cause(ctx))
	}
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return Usage{}, fmt.Errorf("wait for an instance: %w", context.Cause(ctx))
	case <-p.closed:
		return Usage{}, errClosed
	}
	defer func() { <-p.slots }()
	begun := time.Now()
	in, err := p.acquire(ctx)
	if err != nil {
		return Usage{Elapsed: time.Since(begun)}, err
	}
	usage := Usage{Restored: in.calls > 0}
	in.calls++
	err = in.run(ctx, begun, func(ctx context.Context, in *Instance) error {
		if err := in.checkTimeout(ctx); err != nil {
			return err // creating it has used all of the time
		}
		return ask(ctx, in)
	})
	usage.Fuel, usage.Memory, usage.Elapsed = in.used(), int64(in.MemorySize()), time.Since(begun)
	p.release(in, err)
	return usage, err
}

// acquire returns a guest in its initial state.
func (p *Pool) acquire(ctx context.Context) (*Instance, error) {
	p.lock.Lock()
	last := len(p.idle) - 1
	if last >= 0 {
		in := p.idle[last]
		p.idle = p.idle[:last]
		p.lock.Unlock()
		return in, nil
	}
	p.lock.Unlock()
	if p.image == nil {
		return p.initialized(ctx)
	}
	return p.fromImage(ctx)
}

// release restores a guest immediately, so that no data of a call is kept, or discards
// it.
func (p *Pool) release(in *Instance, failed error) {
	if failed != nil || p.image == nil || !in.restorable() || in.restore(p.image) != nil {
		in.close()
		return
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	p.idle = append(p.idle, in)
}

// initialized returns a new instance that has been initialized.
func (p *Pool) initialized(ctx context.Context) (*Instance, error) {
	begun := time.Now()
	in, err := p.instantiate(ctx, nil)
	if err != nil {
		return nil, err
	}
	err = in.writeData(p.module.compiled.fuel.Data)
	if err == nil {
		err = in.run(ctx, begun, in.initialize)
	}
	if err != nil {
		in.close()
		return nil, err
	}
	return in, nil
}

// fromImage returns a new instance with the state of an image.
func (p *Pool) fromImage(ctx context.Context) (*Instance, error) {
	in, err := p.instantiate(ctx, p.image)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(in.growTo(p.image), in.restore(p.image)); err != nil {
		in.close()
		return nil, fmt.Errorf("copy initial memory: %w", err)
	}
	return in, nil
}

// Close rejects new calls, waits for the running guests, and frees them. It must be
// called once.
func (p *Pool) Close() {
	close(p.closed)
	for range cap(p.slots) {
		p.slots <- struct{}{} // keep the slot; otherwise a call that has not seen closed would wait forever
	}
	for _, in := range p.idle {
		in.close()
	}
	p.image.free()
}
