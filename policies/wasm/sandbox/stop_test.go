package sandbox_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/policies/wasm/asm"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// The names are such as TinyGo writes: that of a method begins with a parenthesis.
func TestTrapError_NamesFunctionsInFull(t *testing.T) {
	m := &asm.Module{}
	one, two := []byte{asm.I32}, []byte{asm.I32, asm.I32}
	inner := m.Func("", one, two, 0, asm.Unreachable)
	again := m.Func("", two, one, 0, asm.Call(inner, 1), asm.Drop)
	method := m.Func("", one, nil, 0, asm.Call(again, 1, 2), asm.Drop)
	unnamed := m.Func("", two, nil, 0, asm.Call(method, 1))
	hook := m.Hook("trap", asm.Call(unnamed, 1, 2))
	m.Name(inner, "(*encoding/json.decodeState).value")
	m.Name(again, "sort.Slice[func(int, int) bool]")
	m.Name(method, "(main.T).Method$1")
	m.Name(hook, "main.Collect#wasmexport")
	w := newWorld(t, sandbox.Config{})
	p := w.pool(t, m.Bytes(), sandbox.PoolOptions{Limits: sandbox.Limits{Fuel: 1000, Memory: 1 << 20}})

	_, err := p.Run(t.Context(), calling("trap"))

	stopped := (*sandbox.TrapError)(nil)
	if !errors.As(err, &stopped) {
		t.Fatalf("the error is %v", err)
	}
	want := []string{
		"(*encoding/json.decodeState).value", "sort.Slice[func(int, int) bool]", "(main.T).Method$1", "function 3", "main.Collect#wasmexport",
	}
	if diff := cmp.Diff(want, stopped.Trace); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
}
