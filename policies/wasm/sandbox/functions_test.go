package sandbox_test

import (
	"context"
	"slices"
	"testing"

	"github.com/gleaner-dev/gleaner/policies/wasm/asm"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// wide is the argument with which recurse has other frames than usual.
const wide = 7

// recursive returns a module with the function recurse, which calls itself as often as its argument
// says. If the argument is wide, a function with larger frames calls itself a thousand times.
func recursive() []byte {
	const i32 = 0x7f
	argument := []byte{0x20, 0}
	m := &asm.Module{}
	global := m.Global(0)
	function := func(name string, self uint32, locals int, first ...[]byte) {
		var work, use []byte
		for i := range byte(locals) {
			work = append(work, 0x20, 1+i, 0x20, 0, 0xad, 0x7c, 0x21, 1+i)       // local += argument
			use = append(append(use, 0x20, 1+i, 0xa7), asm.GlobalSet(global)...) // or it would not be kept
		}
		m.Func(name, []byte{i32}, nil, locals, slices.Concat(first...),
			argument, asm.I32Eqz, asm.If([]byte{0x0f}), // return at 0
			work, argument, asm.I32Const(1), []byte{0x6b}, asm.Call(self), use) // with argument - 1
	}
	function("recurse", 0, 2,
		argument, asm.I32Const(wide), []byte{0x46}, asm.If(asm.Call(1, 1000), []byte{0x0f}))
	function("", 1, 77)
	return m.Bytes()
}

func recurse(depth uint64) func(context.Context, *sandbox.Instance) error {
	return func(ctx context.Context, in *sandbox.Instance) error {
		_, err := in.Call(ctx, "recurse", depth)
		return err
	}
}

func TestCall_UsesFunctionsAgain(t *testing.T) {
	p := newWorld(t, sandbox.Config{}).pool(t, recursive(), sandbox.PoolOptions{Instances: 1})
	var idle int
	count := func(depth uint64) func(context.Context, *sandbox.Instance) error {
		return func(ctx context.Context, in *sandbox.Instance) error {
			err := recurse(depth)(ctx, in)
			idle = in.Idle()
			return err
		}
	}
	for depth, want := range map[uint64]int{1: 1, 1000: 0} {
		if _, err := p.Run(t.Context(), count(depth)); err != nil {
			t.Fatal(err)
		}
		if idle != want {
			t.Errorf("after a recursion of depth %d, %d functions are kept, not %d", depth, idle, want)
		}
	}
}

// TestCall_EndsRecursionWhereAFreshInstanceDoes sees that the stack of one call has no effect on
// the next: the verdict would depend on what was evaluated before.
func TestCall_EndsRecursionWhereAFreshInstanceDoes(t *testing.T) {
	const endless = 1 << 30
	w := newWorld(t, sandbox.Config{})
	overflow := func(before ...uint64) int64 {
		p := w.pool(t, recursive(), sandbox.PoolOptions{Instances: 1, Limits: sandbox.Limits{Fuel: sandbox.MaxFuel, Timeout: sandbox.MaxTimeout}})
		for _, depth := range before {
			if _, err := p.Run(t.Context(), recurse(depth)); err != nil {
				t.Fatal(err)
			}
		}
		usage, err := p.Run(t.Context(), recurse(endless))
		if err == nil {
			t.Fatal("an endless recursion ended")
		}
		if len(before) > 0 && !usage.Restored {
			t.Error("the instance was not used again, so nothing was tested")
		}
		return usage.Fuel
	}
	want := overflow()
	for _, before := range [][]uint64{{0}, {1000}, {wide}, {3000, wide, 2}} {
		if got := overflow(before...); got != want {
			t.Errorf("after recursions of depth %d it ends after %d units of fuel, in a fresh instance after %d", before, got, want)
		}
	}
}
