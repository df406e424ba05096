package sandbox_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/policies/wasm/asm"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// world is a host that offers host.do, which does whatever a test wants.
type world struct {
	host *sandbox.Host
	do   func(ctx context.Context, in *sandbox.Instance) error
}

func newWorld(t testing.TB, c sandbox.Config) *world {
	t.Helper()
	w := &world{}
	c.Functions = []sandbox.Function{{
		Module: "host", Name: "do",
		Call: func(ctx context.Context, in *sandbox.Instance, _ []uint64) error { return w.do(ctx, in) },
	}}
	var err error
	if w.host, err = sandbox.New(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.host.Close)
	return w
}

func (w *world) pool(t testing.TB, code []byte, o sandbox.PoolOptions) *sandbox.Pool {
	t.Helper()
	m, err := w.host.Load(t.Context(), code)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	p, err := m.NewPool(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// calling returns what calls an exported function.
func calling(name string) func(ctx context.Context, in *sandbox.Instance) error {
	return func(ctx context.Context, in *sandbox.Instance) error {
		_, err := in.Call(ctx, name)
		return err
	}
}

// guest has functions that change an instance in each way there is.
func guest() *asm.Module {
	m := &asm.Module{}
	do := m.Import("host", "do", nil, nil)
	m.Memory(4, 100)
	m.Data(100, []byte("as it was"))
	state := m.Global(7)
	m.Table(m.Func("", nil, nil, 0))
	m.Hook("nothing")
	m.Hook("write", asm.I32Store(100, 1), asm.I32Store(200_000, 1), asm.I32Const(9), asm.GlobalSet(state))
	m.Hook("grow", asm.I32Const(1), asm.MemoryGrow, asm.Drop)
	m.Hook("clear", asm.TableClear)
	m.Hook("trap", asm.Unreachable)
	m.Hook("spin", asm.Forever())
	m.Hook("ask", asm.Call(do))
	m.Hook("ask_for_ever", asm.Forever(asm.Call(do)))
	m.Func("state", nil, []byte{asm.I32}, 0, asm.GlobalGet(state))
	m.Hook("grow_and_write", asm.I32Const(2), asm.MemoryGrow, asm.Drop, asm.I32Store(5<<16, 1), asm.I32Store(100, 1))
	m.Hook("grow_fully", asm.I32Const(96), asm.MemoryGrow, asm.Drop)
	m.Hook("beyond", asm.I32Load(4<<16), asm.Drop)
	// Where it grew from, unless there is something where it grew to.
	m.Func("anew", nil, []byte{asm.I32}, 0, asm.I32Const(2), asm.MemoryGrow, asm.I32Load(5<<16), asm.I32Add)
	return m
}

func TestHostFunctionsEndACallWithTheirError(t *testing.T) {
	w := newWorld(t, sandbox.Config{})
	p := w.pool(t, guest().Bytes(), sandbox.PoolOptions{Limits: sandbox.Limits{Fuel: 10_000}})
	mine := errors.New("mine")

	w.do = func(context.Context, *sandbox.Instance) error { return mine }
	if _, err := p.Run(t.Context(), calling("ask")); !errors.Is(err, mine) {
		t.Errorf("got %v, want the host function's error", err)
	}

	w.do = func(_ context.Context, in *sandbox.Instance) error { return in.Charge(10_000) }
	usage, err := p.Run(t.Context(), calling("ask"))
	if stopped := new(sandbox.TrapError); !errors.As(err, &stopped) || stopped.Kind != sandbox.FuelExhausted || usage.Fuel != 10_000 {
		t.Errorf("got %v for %d units, want that the fuel is used up", err, usage.Fuel)
	}

	w.do = func(_ context.Context, in *sandbox.Instance) error {
		_ = in.Charge(10_000) // and it goes on
		return nil
	}
	_, err = p.Run(t.Context(), calling("ask"))
	if stopped := new(sandbox.TrapError); !errors.As(err, &stopped) || stopped.Kind != sandbox.FuelExhausted {
		t.Errorf("got %v, want that a call which comes to its end without fuel is none", err)
	}

	w.do = func(ctx context.Context, in *sandbox.Instance) error { return calling("spin")(ctx, in) }
	_, err = p.Run(t.Context(), calling("ask"))
	if stopped := new(sandbox.TrapError); !errors.As(err, &stopped) || stopped.Kind != sandbox.FuelExhausted {
		t.Errorf("got %v, want what the inner call ended with", err)
	}

	var none []int
	w.do = func(context.Context, *sandbox.Instance) error { none[0]++; return nil }
	_, err = p.Run(t.Context(), calling("ask"))
	if stopped := new(sandbox.TrapError); err == nil || errors.As(err, &stopped) {
		t.Errorf("got %v, want that a bug of the host is not the guest's fault", err)
	}
}

func TestAContextThatIsDoneEndsACallAtTheNextOfTheHost(t *testing.T) {
	w := newWorld(t, sandbox.Config{})
	p := w.pool(t, guest().Bytes(), sandbox.PoolOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	w.do = func(context.Context, *sandbox.Instance) error {
		cancel()
		return nil
	}
	_, err := p.Run(ctx, calling("ask_for_ever"))
	if stopped := new(sandbox.TrapError); errors.As(err, &stopped) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context was canceled", err)
	}
}

func TestNoMoreGuestsRunThanThereMayBe(t *testing.T) {
	w := newWorld(t, sandbox.Config{})
	p := w.pool(t, guest().Bytes(), sandbox.PoolOptions{Instances: 2})
	inside, release := make(chan struct{}), make(chan struct{})
	w.do = func(context.Context, *sandbox.Instance) error {
		inside <- struct{}{}
		<-release
		return nil
	}
	var guests sync.WaitGroup
	for range 2 {
		guests.Go(func() {
			if _, err := p.Run(t.Context(), calling("ask")); err != nil {
				t.Error(err)
			}
		})
		<-inside
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	mine := errors.New("mine")
	third := make(chan error)
	go func() {
		_, err := p.Run(ctx, calling("nothing"))
		third <- err
	}()
	cancel(mine)
	if err := <-third; !errors.Is(err, mine) {
		t.Errorf("a third guest ended with %v, want why its caller stopped waiting", err)
	}
	close(release)
	guests.Wait()
}

func TestPoliciesOfOneModuleShareNoInstances(t *testing.T) {
	w := newWorld(t, sandbox.Config{})
	code := guest().Bytes()
	pools := []*sandbox.Pool{w.pool(t, code, sandbox.PoolOptions{}), w.pool(t, code, sandbox.PoolOptions{})}
	var lock sync.Mutex
	owner, restored := map[*sandbox.Instance]*sandbox.Pool{}, 0
	var callers sync.WaitGroup
	for n := range 1000 {
		callers.Go(func() {
			p := pools[n%len(pools)]
			usage, err := p.Run(t.Context(), func(ctx context.Context, in *sandbox.Instance) error {
				lock.Lock()
				if before, used := owner[in]; used && before != p {
					t.Error("an instance has been used by two policies")
				}
				owner[in] = p
				lock.Unlock()
				return calling("write")(ctx, in)
			})
			if err != nil {
				t.Error(err)
			}
			lock.Lock()
			defer lock.Unlock()
			if usage.Restored {
				restored++
			}
		})
	}
	callers.Wait()
	if len(owner) < len(pools) || restored == 0 {
		t.Errorf("%d instances were used, and %d calls found one that had been", len(owner), restored)
	}
}

func TestATrapNamesFunctions(t *testing.T) {
	p := newWorld(t, sandbox.Config{}).pool(t, guest().Bytes(), sandbox.PoolOptions{})
	_, err := p.Run(t.Context(), calling("trap"))
	if err == nil || err.Error() != "it trapped: unreachable, in function 6" {
		t.Errorf("got %v", err)
	}
}

func TestLimits_Validate(t *testing.T) {
	m, err := newWorld(t, sandbox.Config{}).host.Load(t.Context(), guest().Bytes())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	for _, l := range []sandbox.Limits{
		{Fuel: -1}, {Fuel: math.MaxInt64}, {Fuel: 1_000_000_001}, {Memory: 1}, {Memory: 1 << 30}, {Timeout: -1}, {Timeout: time.Minute},
	} {
		if err := l.Validate(); err == nil {
			t.Errorf("%+v is taken for valid", l)
		}
		p, err := m.NewPool(t.Context(), sandbox.PoolOptions{Limits: l})
		if refusal := new(sandbox.RejectedError); !errors.As(err, &refusal) {
			t.Errorf("%+v: got %v, want a refusal", l, err)
		}
		if err == nil {
			p.Close()
		}
	}
	if err := (sandbox.Limits{}).Validate(); err != nil {
		t.Error(err)
	}
}
