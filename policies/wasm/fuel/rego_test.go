package fuel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/compile"
	"github.com/tetratelabs/wazero/api"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

const regoSource = `package gleaner

collect := {"decision": "Delete"} if {
	some label, value in input.object.metadata.labels
	startswith(label, "app")
	regex.match("^web-[0-9]+$", value)
} else := {"decision": "Wait", "reason": concat(",", sort([k | some k, _ in input.object.metadata.labels]))}
`

// compileRego returns the policy as OPA compiles it.
func compileRego(t testing.TB) []byte {
	t.Helper()
	fs := fstest.MapFS{"policy.rego": {Data: []byte(regoSource)}}
	c := compile.New().WithTarget(compile.TargetWasm).WithEntrypoints("gleaner/collect").WithFS(fs).WithPaths("policy.rego")
	if err := c.Build(t.Context()); err != nil {
		t.Fatalf("compile the policy: %v", err)
	}
	if n := len(c.Bundle().WasmModules); n != 1 {
		t.Fatalf("the compiler made %d modules", n)
	}
	return c.Bundle().WasmModules[0].Raw
}

// TestRegoPolicyDoesTheSame evaluates a policy under fuel, on a memory that
// the module imports and the rewriting made its own.
func TestRegoPolicyDoesTheSame(t *testing.T) {
	code := compileRego(t)
	for input, want := range map[string]map[string]string{
		`{"object":{"metadata":{"labels":{"app":"web-12"}}}}`:        {"decision": "Delete"},
		`{"object":{"metadata":{"labels":{"b":"1","app":"db-12"}}}}`: {"decision": "Wait", "reason": "app,b"},
	} {
		var first int64
		for range 2 {
			g := startRego(t, code)
			got, used := evaluate(t, g, input)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
			if first == 0 {
				first = used
			}
			if used != first || used <= 0 {
				t.Errorf("it used %d units, and %d before", used, first)
			}
		}
		t.Logf("%v uses %d units", want, first)
	}
}

func startRego(t *testing.T, code []byte) *guest {
	t.Helper()
	r := newRuntime(t)
	builder := r.NewHostModuleBuilder("env")
	for i, name := range []string{"opa_builtin0", "opa_builtin1", "opa_builtin2", "opa_builtin3", "opa_builtin4"} {
		builder.NewFunctionBuilder().WithGoFunction(api.GoFunc(unexpected), numbers(i+2), numbers(1)).Export(name)
	}
	for _, name := range []string{"opa_abort", "opa_println"} {
		builder.NewFunctionBuilder().WithGoFunction(api.GoFunc(unexpected), numbers(1), nil).Export(name)
	}
	if _, err := builder.Instantiate(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := instantiate(t, r, code, fuel.Options{DefineMemory: true, MaxMemoryPages: 64})
	if g.rewritten.Start != "" {
		if _, _, err := g.spend(t, ampleFuel, g.rewritten.Start); err != nil {
			t.Fatalf("start the policy: %v", err)
		}
	}
	return g
}

// evaluate returns what the policy says to the input, and the units it took.
func evaluate(t *testing.T, g *guest, input string) (map[string]string, int64) {
	t.Helper()
	g.refuel(ampleFuel)
	call := func(name string, args ...uint64) uint64 {
		results, err := g.ExportedFunction(name).Call(t.Context(), args...)
		if err != nil {
			t.Fatalf("call %s: %v", name, err)
		}
		if len(results) == 0 {
			return 0
		}
		return results[0]
	}
	n := uint64(len(input))
	at := call("opa_malloc", n)
	if !g.Memory().Write(uint32(at), []byte(input)) {
		t.Fatal("the memory is too small for the input")
	}
	result := call("opa_eval", 0, 0, 0, at, n, call("opa_heap_ptr_get"), 0)
	rest, _ := g.Memory().Read(uint32(result), g.Memory().Size()-uint32(result))
	document, _, _ := bytes.Cut(rest, []byte{0})
	var set []struct {
		Result map[string]string `json:"result"`
	}
	if err := json.Unmarshal(document, &set); err != nil || len(set) != 1 {
		t.Fatalf("the result is %q: %v", document, err)
	}
	return set[0].Result, ampleFuel - g.left()
}

// unexpected is a built-in that the policy does not use.
func unexpected(context.Context, []uint64) { panic("the policy called a built-in of the host") }

func numbers(n int) []api.ValueType { return slices.Repeat([]api.ValueType{api.ValueTypeI32}, n) }
