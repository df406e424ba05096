package workers_test

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/go-logr/logr"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/operator/modulestore/workers"
	"github.com/gleaner-dev/gleaner/policies/source"
	"github.com/gleaner-dev/gleaner/policies/worker"
	"github.com/gleaner-dev/gleaner/policies/worker/serve"
)

func TestMain(m *testing.M) {
	serve.MainIfRequested()
	os.Exit(m.Run())
}

func request(engine v1alpha1.Engine, namespace, text string) modulestore.CompileRequest {
	files := []source.File{{Data: []byte(text)}}
	return modulestore.CompileRequest{Engine: engine, Name: "m", Namespace: namespace, Files: files, Digest: source.Digest(files)}
}

func newCompiler(t *testing.T) workers.Compiler {
	t.Helper()
	pool, err := worker.New(worker.Config{Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return workers.Compiler{Pool: pool}
}

func TestCompiler_ReturnsCompileErrors(t *testing.T) {
	c := newCompiler(t)
	for claim, r := range map[string]modulestore.CompileRequest{
		"Rego":        request(v1alpha1.EngineRego, "shop", "package gleaner\n\ncollect := {"),
		"WebAssembly": request(v1alpha1.EngineWasm, "", "no module"),
	} {
		_, err := c.Compile(t.Context(), r)
		if compileError := (*modulestore.CompileError)(nil); !errors.As(err, &compileError) || compileError.Message == "" || compileError.Temporary {
			t.Errorf("%s: got %v", claim, err)
		}
	}
}

func TestCompiler_StartsCompiledModules(t *testing.T) {
	c := newCompiler(t)
	m, err := c.Compile(t.Context(), request(v1alpha1.EngineRego, "shop", "package gleaner\n\ncollect := {\"decision\": \"Orphan\"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if !slices.Equal(m.Hooks(), []hostabi.Hook{hostabi.HookCollect}) {
		t.Errorf("hooks %v", m.Hooks())
	}
	i, err := m.Start(t.Context(), modulestore.StartOptions{Policy: "GCPolicy shop/p", Namespace: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	evaluation, err := i.EvaluateMetered(t.Context(), hostabi.Request{APIVersion: hostabi.Version, Hook: hostabi.HookCollect, Attempt: 1, Round: 1})
	if err != nil || evaluation.Verdict.Decision != hostabi.DecisionOrphan || i.Name() != "GCPolicy shop/p" {
		t.Errorf("got %+v, %v", evaluation, err)
	}
}
