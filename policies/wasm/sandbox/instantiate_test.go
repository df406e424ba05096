package sandbox_test

import (
	"errors"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/policies/wasm/asm"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// tableful has a table that takes the engine long to fill, and that each call
// changes, so that no instance can be used twice.
func tableful(elements int) []byte {
	m := &asm.Module{}
	m.Memory(1, 1)
	functions := make([]uint32, elements)
	functions[0] = m.Hook("clear", asm.TableClear)
	m.Table(functions...)
	return m.Bytes()
}

// TestMakingAnInstanceIsAPartOfTheCall holds for what the engine does before a
// guest runs: it counts as the call's time, and ends with its timeout.
func TestMakingAnInstanceIsAPartOfTheCall(t *testing.T) {
	const elements = 200_000
	p := newWorld(t, sandbox.Config{}).pool(t, tableful(elements), sandbox.PoolOptions{Instances: 1})
	took := time.Duration(1<<63 - 1)
	for range 3 {
		usage, err := p.Run(t.Context(), calling("clear"))
		if err != nil || usage.Restored {
			t.Fatalf("got %+v, %v", usage, err)
		}
		took = min(took, usage.Elapsed)
	}
	t.Logf("%d elements take %s", elements, took)
	if took < time.Millisecond { // a nanosecond for each element is far too little
		t.Errorf("making an instance is said to take %s", took)
	}
	p = newWorld(t, sandbox.Config{}).pool(t, tableful(elements), sandbox.PoolOptions{Limits: sandbox.Limits{Timeout: 50 * time.Microsecond}})
	_, err := p.Run(t.Context(), calling("clear"))
	if stopped := new(sandbox.TrapError); !errors.As(err, &stopped) || stopped.Kind != sandbox.TimedOut {
		t.Errorf("got %v, want that there was no time left", err)
	}
}
