package rego

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/test/cases"
	"github.com/open-policy-agent/opa/v1/test/cases/testdata"
	"github.com/open-policy-agent/opa/v1/util"
)

func TestCasesScratch(t *testing.T) {
	var set []cases.TestCase
	err := fs.WalkDir(testdata.V1, "v1", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(p) != ".yaml" {
			return err
		}
		bs, err := fs.ReadFile(testdata.V1, p)
		if err != nil {
			return err
		}
		var s cases.Set
		if err := util.Unmarshal(bs, &s); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		set = append(set, s.Cases...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h := newEngine(t)
	counts := map[string]int{}
	for i, c := range set {
		r := runCase(t, h, c)
		k, _, _ := strings.Cut(r, ":")
		counts[k]++
		if k != "same" && k != "skip" {
			t.Logf("%d %s: %.300s", i, c.Note, r)
		}
	}
	t.Log(len(set), counts)
}

func runCase(t *testing.T, h *Engine, c cases.TestCase) string {
	if c.Data != nil && len(*c.Data) > 0 || c.StrictError || c.InputTerm != nil || len(c.Env) > 0 {
		return "skip: data"
	}
	query, ok := strings.CutPrefix(c.Query, "data.")
	query, ok2 := strings.CutSuffix(query, " = x")
	if !ok || !ok2 || strings.ContainsAny(query, "[ ") {
		return "skip: query"
	}
	modules := map[string]*ast.Module{}
	for i, text := range c.Modules {
		name := fmt.Sprintf("%d.rego", i)
		m, err := parseFile(File{name, text})
		if err != nil {
			return "skip: parse " + err.Error()
		}
		modules[name] = m
	}
	compiler := ast.NewCompiler().WithCapabilities(language()).WithDefaultRegoVersion(ast.RegoV1)
	if compiler.Compile(modules); compiler.Failed() {
		return "skip: compile " + compiler.Errors.Error()
	}
	for _, m := range compiler.Modules {
		if len(checkBuiltins(m)) > 0 {
			return "skip: refused"
		}
	}
	code, err := toWasm(t.Context(), modules, []string{strings.ReplaceAll(query, ".", "/")})
	if err != nil {
		return "skip: wasm " + err.Error()
	}
	m, err := h.host.Load(t.Context(), code)
	if err != nil {
		return "load: " + err.Error()
	}
	defer m.Close()
	module := &Module{loaded: m, Hooks: hookNames[:1]}
	if err := module.readBuiltins(t.Context()); err != nil {
		return "load: " + err.Error()
	}
	p, err := NewPolicy(t.Context(), module, Options{})
	if err != nil {
		return "load: " + err.Error()
	}
	defer p.Close()
	in := []byte("{}")
	if c.Input != nil {
		in, _ = json.Marshal(*c.Input)
	}
	got, err := value(t.Context(), p, hookNames[0], string(in))
	want := "undefined"
	switch {
	case c.WantResult != nil && len(*c.WantResult) > 0:
		w, _ := json.Marshal((*c.WantResult)[0]["x"])
		want = canonical(w)
	case c.WantErrorCode != nil || c.WantError != nil:
		if err != nil && !errors.Is(err, errUndefined) {
			return "same: error"
		}
		want = "error"
	}
	if o := outcome([]byte(got), err); o != want {
		return fmt.Sprintf("differ: want %s, got %s", want, o)
	}
	return "same: "
}
