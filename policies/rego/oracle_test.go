package rego

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	opa "github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/util"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// oracle asks OPA's own evaluator, which knows nothing of modules.
type oracle struct {
	queries map[hostabi.Hook]opa.PreparedEvalQuery
}

func newOracle(t testing.TB, files ...File) *oracle {
	t.Helper()
	modules, err := parse(files, false)
	if err != nil {
		t.Fatal(err)
	}
	if modules, err = withLibrary(modules); err != nil {
		t.Fatal(err)
	}
	compiler := ast.NewCompiler().WithCapabilities(language()).WithDefaultRegoVersion(ast.RegoV1)
	if compiler.Compile(modules); compiler.Failed() {
		t.Fatal(compiler.Errors)
	}
	o := &oracle{queries: map[hostabi.Hook]opa.PreparedEvalQuery{}}
	for _, hook := range hookNames {
		q, err := opa.New(opa.Compiler(compiler), opa.Query("data.gleaner."+string(hook))).PrepareForEval(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		o.queries[hook] = q
	}
	return o
}

// ask gives the value of a hook as JSON.
func (o *oracle) ask(ctx context.Context, hook hostabi.Hook, request []byte) ([]byte, error) {
	var input any
	if err := util.UnmarshalJSON(request, &input); err != nil {
		return nil, err
	}
	results, err := o.queries[hook].Eval(ctx, opa.EvalInput(input))
	if err != nil {
		return nil, err
	}
	if len(results) == 0 {
		return nil, errUndefined
	}
	return json.Marshal(results[0].Expressions[0].Value)
}

// canonical writes JSON with sorted keys and numbers as they are.
func canonical(data []byte) string {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return fmt.Sprintf("no JSON: %q", data)
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(text.Bytes()))
}
