package fuel_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// instantiate rewrites and runs a module of the script, with its start.
func (s *script) instantiate(t *testing.T, file, name string) (*guest, error) {
	code, err := os.ReadFile(filepath.Join(s.folder, file))
	if err != nil {
		t.Fatal(err)
	}
	m, err := fuel.Rewrite(code, fuel.Options{Limits: fuel.Limits{Tables: 50, TableElements: 1 << 28, Branches: 30_000}})
	if err != nil {
		return nil, fmt.Errorf("rewrite: %w", err)
	}
	module, err := s.runtime.InstantiateWithConfig(t.Context(), m.Code, wazero.NewModuleConfig().WithName(name).WithStartFunctions())
	if err != nil {
		return nil, fmt.Errorf("instantiate: %w", err)
	}
	g := &guest{Module: module, rewritten: m, code: code}
	s.guests = append(s.guests, g)
	if m.Start == "" {
		return g, nil
	}
	s.refuel()
	_, err = g.ExportedFunction(m.Start).Call(t.Context())
	return g, err
}

// refuel fills up every module, since they may call each other.
func (s *script) refuel() {
	for _, g := range s.guests {
		g.refuel(ampleFuel)
	}
}

func (s *script) define(t *testing.T, c command) error {
	g, err := s.instantiate(t, c.Filename, c.As)
	if err != nil {
		return err
	}
	s.modules[""] = g
	if c.Name != "" {
		s.modules[c.Name] = g
	}
	return nil
}

// perform does an action and returns its results.
func (s *script) perform(t *testing.T, a action) ([]uint64, error) {
	g := s.modules[a.Module]
	if g == nil {
		return nil, errors.New("there is no such module")
	}
	if a.Type == "get" {
		global := g.ExportedGlobal(a.Field)
		if global == nil {
			return nil, errors.New("there is no such global")
		}
		return []uint64{global.Get()}, nil
	}
	f := g.ExportedFunction(a.Field)
	if f == nil {
		return nil, errors.New("there is no such function")
	}
	var args []uint64
	for _, v := range a.Args {
		args = append(args, v.encode()...)
	}
	s.refuel()
	return f.Call(t.Context(), args...)
}

func (s *script) returns(t *testing.T, c command) error {
	results, err := s.perform(t, c.Action)
	if err != nil {
		return err
	}
	for _, want := range c.Expected {
		n := len(want.encode())
		if len(results) < n {
			return fmt.Errorf("%s returned too little", c.Action.Field)
		}
		if !want.matches(results[:n]) {
			return fmt.Errorf("%s(%v) returned %#x, want %v", c.Action.Field, c.Action.Args, results[:n], want)
		}
		results = results[n:]
	}
	if len(results) > 0 {
		return fmt.Errorf("%s returned too much", c.Action.Field)
	}
	for _, g := range s.guests {
		if g.left() < 0 {
			return fmt.Errorf("%s used up its fuel without a trap", c.Action.Field)
		}
	}
	return nil
}

// trapTexts are the engine's words for what the scripts call differently.
var trapTexts = map[string]string{
	"out of bounds memory access":   "out of bounds memory access",
	"indirect call type mismatch":   "indirect call type mismatch",
	"indirect call":                 "indirect call type mismatch",
	"undefined element":             "invalid table access",
	"undefined":                     "invalid table access",
	"out of bounds table access":    "invalid table access",
	"integer overflow":              "integer overflow",
	"invalid conversion to integer": "invalid conversion to integer",
	"integer divide by zero":        "integer divide by zero",
	"unreachable":                   "unreachable",
	"call stack exhausted":          "stack overflow",
}

func (s *script) traps(t *testing.T, c command) error {
	_, err := s.perform(t, c.Action)
	if err == nil {
		return errors.New("it did not trap")
	}
	text, ok := trapTexts[c.Text]
	if !ok && strings.HasPrefix(c.Text, "uninitialized") {
		text = "invalid table access"
	}
	if text == "" || !strings.Contains(err.Error(), text) {
		return fmt.Errorf("want a trap %q: %w", c.Text, err)
	}
	for _, g := range s.guests {
		if g.left() < 0 {
			return errors.New("it trapped because its fuel was used up")
		}
	}
	return nil
}

// refuses holds when either the rewriter or the engine refuses the module.
func (s *script) refuses(t *testing.T, c command) error {
	code, err := os.ReadFile(filepath.Join(s.folder, c.Filename))
	if err != nil {
		t.Fatal(err)
	}
	m, err := fuel.Rewrite(code, fuel.Options{})
	if err != nil {
		return nil //nolint:nilerr // to be refused is what is wanted
	}
	compiled, err := s.runtime.CompileModule(t.Context(), m.Code)
	if err != nil {
		return nil //nolint:nilerr // to be refused is what is wanted
	}
	_ = compiled.Close(t.Context())
	return fmt.Errorf("%s was taken in: %s", c.Filename, c.Text)
}
