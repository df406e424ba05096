package sandbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/policies/wasm/asm"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// snapshotState is all that a guest can see of itself.
type snapshotState struct {
	Memory string
	State  []uint64
}

func look(t *testing.T, p *sandbox.Pool) (snapshotState, sandbox.Usage) {
	t.Helper()
	var w snapshotState
	usage, err := p.Run(t.Context(), func(ctx context.Context, in *sandbox.Instance) error {
		data, ok := in.Read(0, uint32(in.MemorySize()))
		if !ok {
			return errors.New("the memory can't be read")
		}
		w.Memory = string(data)
		var err error
		w.State, err = in.Call(ctx, "state")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return w, usage
}

func TestEveryCallFindsTheSameState(t *testing.T) {
	for _, c := range []struct {
		claim    string
		function string
		restored bool // the instance can be used again
	}{
		{"after one that changed nothing", "nothing", true},
		{"after one that wrote to memory and a global", "write", true},
		{"after one that grew its memory", "grow", true},
		{"after one that grew its memory and wrote there", "grow_and_write", true},
		{"after one that grew its memory to the end of what the module allows itself, on another instance", "grow_fully", false},
		{"after one that changed a table, on another instance", "clear", false},
		{"after one that trapped, on another instance", "trap", false},
		{"after one that ran out, on another instance", "spin", false},
	} {
		t.Run(c.claim, func(t *testing.T) {
			p := newWorld(t, sandbox.Config{}).pool(t, guest().Bytes(), sandbox.PoolOptions{
				Instances: 1, Limits: sandbox.Limits{Fuel: 10_000_000},
			})
			want, _ := look(t, p)
			_, _ = p.Run(t.Context(), calling(c.function)) // traps are wanted in some cases
			got, usage := look(t, p)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error("the memory or the global is not as it was")
			}
			if usage.Restored != c.restored {
				t.Errorf("an instance that had been used is there: %t, want %t", usage.Restored, c.restored)
			}
		})
	}
}

func TestRestore_ShrinksMemory(t *testing.T) {
	p := newWorld(t, sandbox.Config{}).pool(t, guest().Bytes(), sandbox.PoolOptions{Instances: 1})
	for n := range 3 {
		if _, err := p.Run(t.Context(), calling("grow_and_write")); err != nil {
			t.Fatal(err)
		}
		usage, err := p.Run(t.Context(), func(ctx context.Context, in *sandbox.Instance) error {
			results, err := in.Call(ctx, "anew")
			if err == nil && results[0] != 4 {
				t.Errorf("grown anew, it has had %d pages, or there is something in the new ones", results[0])
			}
			return err
		})
		if err != nil || !usage.Restored || usage.Memory != 6<<16 {
			t.Errorf("%d: it used %d bytes (restored: %t): %v", n, usage.Memory, usage.Restored, err)
		}
		usage, err = p.Run(t.Context(), calling("beyond"))
		if stopped := new(sandbox.TrapError); !errors.As(err, &stopped) || stopped.Kind != sandbox.Trapped || !usage.Restored {
			t.Errorf("%d: what lies where another call grew to is read (restored: %t): %v", n, usage.Restored, err)
		}
	}
}

func TestInitialization_RunsForEachCallIfTableChanges(t *testing.T) {
	times := 0
	p := newWorld(t, sandbox.Config{}).pool(t, guest().Bytes(), sandbox.PoolOptions{
		Initialize: func(ctx context.Context, in *sandbox.Instance) error {
			times++
			return calling("clear")(ctx, in)
		},
	})
	for range 3 {
		if _, usage := look(t, p); usage.Restored {
			t.Error("an instance was restored that can't be")
		}
	}
	if times != 4 {
		t.Errorf("it was initialised %d times, want once for the pool and once for each of 3 calls", times)
	}
}

func TestInitialization_RunsOnceIfMemoryGrows(t *testing.T) {
	times := 0
	p := newWorld(t, sandbox.Config{}).pool(t, guest().Bytes(), sandbox.PoolOptions{
		Initialize: func(ctx context.Context, in *sandbox.Instance) error {
			times++
			return errors.Join(calling("grow")(ctx, in), calling("write")(ctx, in))
		},
	})
	for range 3 {
		if w, _ := look(t, p); len(w.Memory) != 5<<16 || w.Memory[100] != 1 || w.State[0] != 9 {
			t.Errorf("an instance has %d bytes and the global %d", len(w.Memory), w.State)
		}
	}
	if times != 1 {
		t.Errorf("it was initialised %d times", times)
	}
}

// TestAModuleThatLeavesTooMuchMemoryIsRefused holds for what every policy would
// keep a copy of.
func TestAModuleThatLeavesTooMuchMemoryIsRefused(t *testing.T) {
	filled := func(bytes int32) []byte {
		m := &asm.Module{}
		m.Memory(1024, 1024)
		fill := []byte{0xfc, 11, 0} // memory.fill
		m.Start(m.Func("", nil, nil, 0, asm.I32Const(0), asm.I32Const(1), asm.I32Const(bytes), fill))
		return m.Bytes()
	}
	w := newWorld(t, sandbox.Config{})
	w.pool(t, filled(sandbox.MaxImage), sandbox.PoolOptions{})
	m, err := w.host.Load(t.Context(), filled(sandbox.MaxImage+1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	_, err = m.NewPool(t.Context(), sandbox.PoolOptions{})
	if refusal := new(sandbox.RejectedError); !errors.As(err, &refusal) || !strings.Contains(refusal.Message, "which exceeds the limit of 32 MiB") {
		t.Errorf("got %v, want a refusal", err)
	}
}
