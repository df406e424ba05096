package rego

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// The corpus holds what Rego can say, with what it comes to. A line of a block
// "values" is an expression; below it stands the value that both OPA's evaluator
// and the module give, or both values where they differ. There are no differences
// but those in the file differences. After a change run it with -rewrite, and then
// read the diff.
func TestCorpus(t *testing.T) {
	notUnderRace(t)
	h := newEngine(t)
	datadriven.Walk(t, "testdata/corpus", func(t *testing.T, path string) {
		input := "{}"
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out string
			switch d.Cmd {
			case "input":
				input = d.Input
			case "values":
				out = values(t, h, input, d.Input)
			case "rules":
				out = bothWays(t, h, input, d.Input)
			default:
				d.Fatalf(t, "no such command: %s", d.Cmd)
			}
			if strings.Contains(out, differs) && filepath.Base(path) != "differences" {
				t.Errorf("%s: OPA and the module differ:\n%s", d.Pos, out)
			}
			return out
		})
	})
}

// values makes a policy of expressions, whose verdict lists what each comes to:
// nothing, or one value.
func values(t *testing.T, h *Engine, input, lines string) string {
	var policy, collect strings.Builder
	expressions := strings.Split(strings.TrimSpace(lines), "\n")
	for i, e := range expressions {
		fmt.Fprintf(&policy, "v%d := %s\n", i, e)
		fmt.Fprintf(&collect, "[x | x := v%d],\n", i)
	}
	files := File{Name: "corpus.rego", Text: "package gleaner\n" + policy.String() + "collect := [\n" + collect.String() + "]\n"}
	want, err := newOracle(t, files).ask(t.Context(), "collect", []byte(input))
	if err != nil {
		return "OPA: " + err.Error()
	}
	p := newPolicy(t, h, sandbox.Limits{}, files)
	got, err := value(t.Context(), p, "collect", input)
	if err != nil {
		return "module: " + firstLine(err)
	}
	var out strings.Builder
	a, b := lists(t, want), lists(t, []byte(got))
	for i, e := range expressions {
		fmt.Fprintf(&out, "%s => %s\n", e, compared(a[i], b[i]))
	}
	return out.String()
}

func lists(t *testing.T, data []byte) []string {
	var raw [][]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	var all []string
	for _, list := range raw {
		value := "undefined"
		if len(list) > 0 {
			value = canonical(list[0])
		}
		all = append(all, value)
	}
	return all
}

// differs stands between the answers of OPA and of the module.
const differs = ", module "

func compared(want, got string) string {
	if want == got {
		return want
	}
	return "OPA " + want + differs + got
}

// bothWays asks a whole policy.
func bothWays(t *testing.T, h *Engine, input, policy string) string {
	files := File{Name: "corpus.rego", Text: policy}
	p := newPolicy(t, h, sandbox.Limits{}, files)
	o := newOracle(t, files)
	var out strings.Builder
	for _, hook := range p.module.Hooks {
		want, err := o.ask(t.Context(), hook, []byte(input))
		a := outcome(want, err)
		got, err := value(t.Context(), p, hook, input)
		if fault := (*policies.Fault)(nil); err != nil && errors.As(p.fault(hook, err), &fault) && kind(p, err) != policies.FaultNoVerdict {
			err = errors.New(fault.Message)
		}
		fmt.Fprintf(&out, "%s: %s\n", hook, compared(a, outcome([]byte(got), err)))
	}
	return out.String()
}

func outcome(value []byte, err error) string {
	switch {
	case errors.Is(err, errUndefined):
		return "undefined"
	case err != nil:
		return firstLine(err)
	}
	return canonical(value)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
