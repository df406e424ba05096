package fuel_test

import (
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// addSeeds adds modules with something of everything.
func addSeeds(f *testing.F) {
	for _, a := range []assembly{varied(), endless(), withData(), with(0x41, 0, 0x0e, 1, 0, 0), with(0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 12, 0, 0)} {
		f.Add(a.bytes())
	}
	for seed := range uint64(5) {
		f.Add(randomProgram(seed).module(false))
	}
	for i, c := range computations() {
		if i%7 == 0 {
			f.Add(c.program().bytes())
		}
	}
	f.Add(manyTargets(20, 10).bytes())
}

// checkBounds holds for what is made of a module: it is no larger than its limits
// say, and took memory in proportion to the original.
func checkBounds(t *testing.T, original []byte, m fuel.Module, taken uint64, o fuel.Options) {
	if len(m.Code) > 64*len(original)+1<<12 {
		t.Errorf("%d bytes became %d", len(original), len(m.Code))
	}
	if most := uint64(2000*len(original) + 1<<20); taken > most {
		t.Errorf("rewriting %d bytes took %d, which is over %d", len(original), taken, most)
	}
	if len(m.Exports) > o.Limits.Entries || len(m.Imports) > o.Limits.Entries || len(m.Globals) > o.Limits.Entries {
		t.Errorf("it has %d exports, %d imports and %d globals", len(m.Exports), len(m.Imports), len(m.Globals))
	}
	if m.Memory != nil && !m.Memory.Imported && m.Memory.Max > o.MaxMemoryPages {
		t.Errorf("its memory can grow to %d pages", m.Memory.Max)
	}
}

// FuzzRewrite holds that any bytes are refused in words or rewritten, within
// bounds, and that the engine takes in what was rewritten if, and only if, it
// takes in the original.
func FuzzRewrite(f *testing.F) {
	addSeeds(f)
	r := wazero.NewRuntimeWithConfig(f.Context(), wazero.NewRuntimeConfigCompiler().WithCoreFeatures(api.CoreFeaturesV2))
	limits := fuel.Limits{ModuleSize: 1 << 16, Branches: 1_000, Loops: 100, Locals: 1_000, Joins: 100_000, Entries: 1_000}
	f.Fuzz(func(t *testing.T, code []byte) {
		for _, takeData := range []bool{false, true} {
			o := fuel.Options{Limits: limits, ExtractData: takeData, MaxMemoryPages: 1 << 16}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			m, err := fuel.Rewrite(code, o)
			runtime.ReadMemStats(&after)
			if err != nil {
				if refusal := (*fuel.RejectedError)(nil); !errors.As(err, &refusal) || refusal.Message == "" {
					t.Errorf("the error is not a refusal in words: %v", err)
				}
				return
			}
			checkBounds(t, code, m, after.TotalAlloc-before.TotalAlloc, o)
			original, rewritten := compiles(t, r, withoutCustom(code)), compiles(t, r, m.Code)
			if original == nil && rewritten != nil {
				t.Errorf("the engine refuses the rewritten module only: %v", rewritten)
			}
			if original != nil && rewritten == nil && m.Start == "" {
				t.Errorf("the engine refuses the original only: %v", original)
			}
		}
	})
}

// compiles returns why the engine does not take in the module.
func compiles(t *testing.T, r wazero.Runtime, code []byte) error {
	compiled, err := r.CompileModule(t.Context(), code)
	if err != nil {
		return err
	}
	return compiled.Close(t.Context())
}

// withoutCustom returns a module that was taken in, without its custom
// sections: the engine believes the counts in them.
func withoutCustom(code []byte) []byte {
	kept := code[:8:8]
	for at := 8; at < len(code); {
		size, n := binary.Uvarint(code[at+1:])
		end := at + 1 + n + int(size)
		if code[at] != 0 {
			kept = append(kept, code[at:end]...)
		}
		at = end
	}
	return kept
}

// FuzzRun holds that whatever the engine takes in ends, within its fuel and
// memory.
func FuzzRun(f *testing.F) {
	addSeeds(f)
	r := wazero.NewRuntimeWithConfig(f.Context(), wazero.NewRuntimeConfigCompiler().WithCoreFeatures(api.CoreFeaturesV2))
	o := fuel.Options{
		Limits:         fuel.Limits{ModuleSize: 1 << 14, Branches: 1_000, Loops: 100, Locals: 1_000, Joins: 100_000, TableElements: 1_000},
		MaxMemoryPages: 8,
	}
	f.Fuzz(func(t *testing.T, code []byte) {
		m, err := fuel.Rewrite(code, o)
		if err != nil || len(m.Imports) > 0 || compiles(t, r, m.Code) != nil {
			return
		}
		module, err := r.InstantiateWithConfig(t.Context(), m.Code, wazero.NewModuleConfig().WithName("").WithStartFunctions())
		if err != nil {
			return
		}
		defer closeAll(t, module)
		g := &guest{Module: module, rewritten: m}
		for _, e := range m.Exports {
			if e.Kind != fuel.KindFunction || len(e.Params) > 0 {
				continue
			}
			_, used, err := g.spend(t, 100_000, e.Name)
			if used < 0 || g.left() < 0 && err == nil {
				t.Errorf("%s used %d units and ended with %v", e.Name, used, err)
			}
			if m.Memory != nil && g.Memory().Size() > 8<<16 {
				t.Errorf("%s grew the memory to %d bytes", e.Name, g.Memory().Size())
			}
		}
	})
}
