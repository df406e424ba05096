package fuel_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// FuzzRewrite holds that any bytes are refused in words or rewritten, and that
// the engine takes in what was rewritten if, and only if, it takes in the
// original.
func FuzzRewrite(f *testing.F) {
	for _, a := range []assembly{varied(), endless(), withData(), with(0x41, 0, 0x0e, 1, 0, 0), with(0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 12, 0, 0)} {
		f.Add(a.bytes())
	}
	for seed := range uint64(5) {
		f.Add(randomProgram(seed).module(false))
	}
	r := wazero.NewRuntimeWithConfig(f.Context(), wazero.NewRuntimeConfigCompiler().WithCoreFeatures(api.CoreFeaturesV2))
	limits := fuel.Limits{ModuleSize: 1 << 16, Branches: 1_000, Loops: 100, Locals: 1_000, Joins: 100_000}
	f.Fuzz(func(t *testing.T, code []byte) {
		for _, takeData := range []bool{false, true} {
			m, err := fuel.Rewrite(code, fuel.Options{Limits: limits, TakeData: takeData})
			if err != nil {
				if refusal := (*fuel.Refusal)(nil); !errors.As(err, &refusal) || refusal.Message == "" {
					t.Errorf("the error is not a refusal in words: %v", err)
				}
				return
			}
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
