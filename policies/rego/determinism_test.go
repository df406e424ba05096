package rego

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// telling answers with what would show a difference if there were one: the order
// of sets and objects, and what built-ins of the host come to.
var telling = File{"telling.rego", `package gleaner

labels := {name | some name, _ in input.object.metadata.labels}

collect := {
	"decision": "Abstain",
	"reason": concat(" ", [
		concat(",", labels),
		concat(",", [sprintf("%s=%v", [k, v]) | some k, v in input.object.metadata.labels]),
		json.marshal(input.object.metadata.labels),
		sprintf("%d", [sum([y | some x in numbers.range(1, 100); y := x * x])]),
	]),
}

propagate := collect
`}

// sampleRequests are requests that differ in size, and for two hooks.
func sampleRequests() []hostabi.Request {
	var all []hostabi.Request
	for n := range 5 {
		labels := map[string]string{}
		for i := range 4 * n {
			labels[fmt.Sprintf("label-%d", i)] = strings.Repeat("x", i)
		}
		all = append(all, request("collect", labels, hostabi.OwnerAbsent), request("propagate", labels))
	}
	return all
}

// resultText is all of an answer that must not depend on where and when it was given.
func resultText(a Evaluation) string {
	return fmt.Sprintf("%v %d units, %d bytes", a.Verdict, a.Fuel, a.Memory)
}

func TestEvaluate_IsDeterministic(t *testing.T) {
	e := newEngine(t)
	m, err := e.Load(t.Context(), []File{telling})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	start := func(t *testing.T, instances int) *Policy {
		p, err := NewPolicy(t.Context(), m, Options{Name: "test", Instances: instances})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return p
	}
	all, want := sampleRequests(), []string{}
	first := start(t, 1)
	for _, q := range all {
		a, err := first.EvaluateMetered(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, resultText(a))
	}
	t.Run("in a thousand calls at a time, on instances that are restored", func(t *testing.T) {
		p := start(t, 3)
		var callers sync.WaitGroup
		for n := range 1000 {
			callers.Go(func() {
				if a, err := p.EvaluateMetered(t.Context(), all[n%len(all)]); err != nil || resultText(a) != want[n%len(all)] {
					t.Errorf("question %d: got %s, %v; before: %s", n%len(all), resultText(a), err, want[n%len(all)])
				}
			})
		}
		callers.Wait()
	})
	t.Run("in a thousand calls on fresh ones", func(t *testing.T) {
		for n := range 1000 {
			p, err := NewPolicy(t.Context(), m, Options{Name: "test", Instances: 1})
			if err != nil {
				t.Fatal(err)
			}
			a, err := p.EvaluateMetered(t.Context(), all[n%len(all)])
			p.Close()
			if err != nil || a.Restored || resultText(a) != want[n%len(all)] {
				t.Fatalf("question %d: got %s, %v; before: %s", n%len(all), resultText(a), err, want[n%len(all)])
			}
		}
	})
}

// answersTo is set for a process that prints its answers, and names a file.
const answersTo = "GLEANER_TEST_ANSWERS_TO"

func TestEvaluate_IsDeterministicAcrossProcesses(t *testing.T) {
	if file := os.Getenv(answersTo); file != "" {
		writeAnswers(t, file)
		return
	}
	answers := map[string]bool{}
	for n := range 2 {
		file := filepath.Join(t.TempDir(), fmt.Sprint(n))
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
		c.Env = append(os.Environ(), answersTo+"="+file)
		if output, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		answers[string(text)] = true
	}
	if len(answers) != 1 {
		t.Errorf("two processes gave %v", answers)
	}
}

// writeAnswers is the other process. It compiles the policy by itself.
func writeAnswers(t *testing.T, file string) {
	p := newPolicy(t, newEngine(t), sandbox.Limits{}, telling)
	var all []string
	for _, q := range sampleRequests() {
		a, err := p.EvaluateMetered(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, resultText(a))
	}
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestEvaluate_SurvivesHostileCalls(t *testing.T) {
	e := newEngine(t)
	neighbour := newPolicy(t, e, sandbox.Limits{}, keep)
	limits := sandbox.Limits{Fuel: 1_000_000, Memory: 4 << 20}
	var bad []*Policy
	for _, rules := range []string{
		exponential(40),
		doubling(`concat("", [x, x])`, `"aaaaaaaa"`),
		doubling(`sprintf("%s%s", [x, x])`, `"aaaaaaaa"`),
		`collect := count(numbers.range(1, 1000000000))`,
		`collect := bits.lsh(1, 100000000000)`,
		`collect := "Delete"`,
		`collect := {"decision": "Obliterate"}`,
		`collect := {"decision": "Delete"} if input.never`,
	} {
		bad = append(bad, newPolicy(t, e, limits, File{"a.rego", "package gleaner\n" + rules}))
	}
	var callers sync.WaitGroup
	for n := range 1000 {
		callers.Go(func() {
			p := bad[n%len(bad)]
			v, err := p.Evaluate(t.Context(), request("collect", nil))
			if fault := (*policies.Fault)(nil); !errors.As(err, &fault) {
				t.Errorf("policy %d: got %v, %v, want a fault", n%len(bad), v, err)
			}
			got, err := neighbour.Evaluate(t.Context(), request("collect", map[string]string{"keep": "true"}))
			if err != nil || got.Decision != hostabi.DecisionOrphan {
				t.Errorf("their neighbour answers %v, %v", got, err)
			}
		})
	}
	callers.Wait()
}
