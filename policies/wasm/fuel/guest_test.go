package fuel_test

import (
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// guest is an instance of a rewritten module.
type guest struct {
	api.Module
	rewritten fuel.Module
	code      []byte // of the original
}

// refuel sets the counter.
func (g *guest) refuel(units int64) {
	g.ExportedGlobal(fuel.FuelGlobal).(api.MutableGlobal).Set(uint64(units))
}

// left is what the counter says.
func (g *guest) left() int64 { return int64(g.ExportedGlobal(fuel.FuelGlobal).Get()) }

// changed tells whether the instance can no longer be put back.
func (g *guest) changed() bool { return g.ExportedGlobal(fuel.ChangedGlobal).Get() != 0 }

// spend calls a function with so much fuel and returns what it used.
func (g *guest) spend(t testing.TB, units int64, function string, args ...uint64) ([]uint64, int64, error) {
	g.refuel(units)
	results, err := g.ExportedFunction(function).Call(t.Context(), args...)
	return results, units - g.left(), err
}

// rewrite rewrites a module that has to be taken in.
func rewrite(t testing.TB, code []byte, o fuel.Options) fuel.Module {
	t.Helper()
	m, err := fuel.Rewrite(code, o)
	if err != nil {
		t.Fatalf("rewrite: %v", err)
	}
	return m
}

// instantiate runs a module that has to be taken in, without its start.
func instantiate(t testing.TB, r wazero.Runtime, code []byte, o fuel.Options) *guest {
	t.Helper()
	m := rewrite(t, code, o)
	module, err := r.InstantiateWithConfig(t.Context(), m.Code, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		t.Fatalf("instantiate the rewritten module: %v", err)
	}
	return &guest{Module: module, rewritten: m, code: code}
}

// newRuntime returns an engine with the features that modules may use.
func newRuntime(t testing.TB) wazero.Runtime {
	r := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigCompiler().WithCoreFeatures(api.CoreFeaturesV2))
	t.Cleanup(func() { _ = r.Close(t.Context()) })
	return r
}
