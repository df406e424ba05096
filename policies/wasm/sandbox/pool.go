package sandbox

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// PoolOptions say how the guests of a pool are run.
type PoolOptions struct {
	Limits Limits

	// Instances is how many guests may run at the same time; others wait.
	// Default: one for each core, and at least two.
	Instances int

	// Initialize, if there is one, brings a new instance to the state in which
	// every call finds it, after the module's own start function. It must do the
	// same each time. It is called under the limits of a call.
	Initialize func(ctx context.Context, in *Instance) error
}

// Pool has the guests of one policy, which share nothing with those of another
// but code. Every call finds a guest in the state in which initialisation left
// it, however often that guest has been used.
type Pool struct {
	module  *Module
	options PoolOptions
	image   *image // nil when instances can't be restored and are used once

	// InitFuel is what initialisation used.
	InitFuel int64

	slots  chan struct{} // one in it for each guest that runs
	closed chan struct{} // closed by Close

	lock sync.Mutex // covers what follows
	idle []*Instance
}

// Usage is what a call took.
type Usage struct {
	Fuel     int64         // units
	Memory   int64         // bytes of the guest's memory at the end
	Elapsed  time.Duration // with making an instance, without waiting for a free one
	Restored bool          // the guest had been used before
}

// NewPool initialises a first instance, and keeps what that leads to. The error
// is a *Refusal or *Stopped when the module is to blame, or whatever Initialize
// returned.
func (m *Module) NewPool(ctx context.Context, o PoolOptions) (*Pool, error) {
	if err := o.Limits.Validate(); err != nil {
		return nil, &Refusal{Message: "its limits can't be used: " + err.Error()}
	}
	o.Limits = o.Limits.WithDefaults()
	if o.Instances == 0 {
		o.Instances = max(2, runtime.GOMAXPROCS(0))
	}
	if memory := m.compiled.fuel.Memory; memory != nil && int64(memory.Min)*pageSize > o.Limits.Memory {
		return nil, &Refusal{Message: fmt.Sprintf("it needs %s of memory to begin with, which is over its limit of %s",
			bytesText(int64(memory.Min)*pageSize), bytesText(o.Limits.Memory))}
	}
	p := &Pool{module: m, options: o, slots: make(chan struct{}, o.Instances), closed: make(chan struct{})}
	in, err := p.initialized(ctx)
	if err != nil {
		return nil, err
	}
	defer in.close()
	p.InitFuel = in.used()
	if p.image, err = in.takeImage(); err != nil {
		return nil, err
	}
	return p, nil
}

// Run has a guest to itself while ask runs, with all the fuel and time of one
// call. It waits until a guest is free or the context is done.
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
	in, err := p.take(ctx)
	if err != nil {
		return Usage{Elapsed: time.Since(begun)}, err
	}
	usage := Usage{Restored: in.calls > 0}
	in.calls++
	err = in.run(ctx, begun, func(ctx context.Context, in *Instance) error {
		if err := in.punctual(ctx); err != nil {
			return err // making it has taken all of the time
		}
		return ask(ctx, in)
	})
	usage.Fuel, usage.Memory, usage.Elapsed = in.used(), int64(in.MemorySize()), time.Since(begun)
	p.put(in, err)
	return usage, err
}

// take returns a guest in its initial state.
func (p *Pool) take(ctx context.Context) (*Instance, error) {
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

// put restores a guest at once, so that what it was told is not kept, or throws
// it away.
func (p *Pool) put(in *Instance, failed error) {
	if failed != nil || p.image == nil || !in.restorable() || in.restore(p.image) != nil {
		in.close()
		return
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	p.idle = append(p.idle, in)
}

// initialized returns an instance that has initialised itself.
func (p *Pool) initialized(ctx context.Context) (*Instance, error) {
	begun := time.Now()
	in, err := p.instantiate(ctx, nil)
	if err != nil {
		return nil, err
	}
	err = in.fill(p.module.compiled.fuel.Data)
	if err == nil {
		err = in.run(ctx, begun, in.initialize)
	}
	if err != nil {
		in.close()
		return nil, err
	}
	return in, nil
}

// fromImage returns an instance into which another one's initialisation has been
// copied.
func (p *Pool) fromImage(ctx context.Context) (*Instance, error) {
	in, err := p.instantiate(ctx, p.image)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(in.growTo(p.image), in.restore(p.image)); err != nil {
		in.close()
		return nil, fmt.Errorf("copy the initial memory: %w", err)
	}
	return in, nil
}

// Close waits for the guests that run, lets no other begin, and frees them. It
// is to be called once.
func (p *Pool) Close() {
	close(p.closed)
	for range cap(p.slots) {
		p.slots <- struct{}{} // kept: a call that had not seen closed waits for ever otherwise
	}
	for _, in := range p.idle {
		in.close()
	}
	p.image.free()
}
