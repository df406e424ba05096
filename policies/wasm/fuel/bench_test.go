package fuel_test

import (
	"math"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// BenchmarkCompile has the engine compile modules as they are, and rewritten.
func BenchmarkCompile(b *testing.B) {
	for _, module := range []struct {
		name string
		code []byte
	}{{"stock", stock(b)}, {"rego", compileRego(b)}} {
		b.Run(module.name+"/plain", func(b *testing.B) {
			for b.Loop() {
				compileAgain(b, module.code)
			}
			b.ReportMetric(float64(len(module.code))/1e6, "MB")
		})
		b.Run(module.name+"/fuel", func(b *testing.B) {
			for b.Loop() {
				m := rewrite(b, module.code, fuel.Options{DefineMemory: true})
				compileAgain(b, m.Code)
				b.ReportMetric(float64(len(m.Code))/1e6, "MB")
			}
		})
		b.Run(module.name+"/rewriting", func(b *testing.B) {
			for b.Loop() {
				rewrite(b, module.code, fuel.Options{DefineMemory: true})
			}
		})
	}
}

func compileAgain(b *testing.B, code []byte) {
	r := wazero.NewRuntimeWithConfig(b.Context(), wazero.NewRuntimeConfigCompiler())
	defer r.Close(b.Context())
	if _, err := r.CompileModule(b.Context(), code); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkFresh instantiates the stock guest and calls it, as it is and with
// fuel.
func BenchmarkFresh(b *testing.B) {
	r := newWASIRuntime(b)
	for _, module := range []struct {
		name string
		code []byte
	}{{"plain", stock(b)}, {"fuel", rewrite(b, stock(b), fuel.Options{}).Code}} {
		b.Run(module.name, func(b *testing.B) {
			compiled, err := r.CompileModule(b.Context(), module.code)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				m, err := r.InstantiateModule(b.Context(), compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
				if err != nil {
					b.Fatal(err)
				}
				g := &guest{Module: m}
				if module.name == "fuel" {
					g.refuel(math.MaxInt64)
				}
				for _, function := range []string{"_initialize", "parse"} {
					if _, err := m.ExportedFunction(function).Call(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				if err := m.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
