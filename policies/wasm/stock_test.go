package wasm_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm"
)

func TestAStockGoGuestAnswers(t *testing.T) {
	p := stockPolicy(t, wasm.Options{})
	for _, c := range []struct {
		claim  string
		do     string
		count  int
		reason string
	}{
		{"a request reaches it whole", "labels", 0, "a=1,b=2,c=3,d=4,e=5,f=6,g=7,h=8"},
		{"the clock starts at the request's time", "clock", 0, "2026-03-01T12:00:00Z"},
		{"while it is initialised, the clock stands near the beginning", "start", 0, "1970-01-01T00:00:01Z"},
		{"a guest that sleeps wakes up at once, and has slept", "sleep", 3600, "1h0m0s"},
		{"there are no arguments, variables, files or networks", "world", 0, "0 0 true true"},
		{"it has state from no other call", "calls", 0, "1"},
	} {
		t.Run(c.claim, func(t *testing.T) {
			for range 3 {
				got, err := p.Evaluate(t.Context(), ask(c.do, c.count))
				if err != nil {
					t.Fatal(err)
				}
				want := hostabi.Verdict{Decision: hostabi.DecisionAbstain, Reason: c.reason}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("verdict (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestAStockGoGuestFails(t *testing.T) {
	p := stockPolicy(t, wasm.Options{Limits: wasm.Limits{Fuel: 100_000_000, Memory: 32 << 20}})
	for _, c := range []struct {
		claim string
		do    string
		kind  policies.FaultKind
		words []string
	}{
		{"a panic is quoted, with where it was", "panic", policies.FaultTrapped, []string{"panic: there is no bucket", "main.serve"}},
		{"a panic on standard output is quoted", "tinygo", policies.FaultTrapped, []string{"standard output: panic: there is no TinyGo bucket"}},
		{"an exit is told with its code", "exit", policies.FaultTrapped, []string{"it exited with code 3", "main.serve"}},
		{"an endless loop is told with where it is", "spin", policies.FaultFuelExhausted, []string{"fuel of 100000000 units", "main.serve"}},
		{"a hoard ends at the limit of memory", "hoard", policies.FaultMemoryLimit, []string{"limit of 32 MiB", "out of memory"}},
	} {
		t.Run(c.claim, func(t *testing.T) {
			_, err := p.Evaluate(t.Context(), ask(c.do, 1000))
			fault := wantFault(t, err, c.kind)
			for _, words := range c.words {
				if !strings.Contains(fault.Message, words) {
					t.Errorf("the message is %q, want %q in it", fault.Message, words)
				}
			}
			healthy(t, p)
		})
	}
}

func TestRandomBytesComeFromTheRequest(t *testing.T) {
	p := stockPolicy(t, wasm.Options{})
	random := func(name string) string {
		request := ask("random", 0)
		request.Object.Metadata.Name = name
		v, err := p.Evaluate(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		return v.Reason
	}
	if a, b := random("a"), random("b"); a == b || a != random("a") || len(a) != 32 {
		t.Errorf("one request gave %s, then %s, and another %s", a, random("a"), b)
	}
}

func TestWhatAModuleWritesIsLogged(t *testing.T) {
	p := stockPolicy(t, wasm.Options{})
	a, err := p.EvaluateMetered(t.Context(), ask("print", 0))
	if err != nil {
		t.Fatal(err)
	}
	want := wasm.Log{Lines: []wasm.Line{
		{Source: wasm.SourceStdout, Level: hostabi.LogInfo, Text: "to standard output"},
		{Source: wasm.SourceStderr, Level: hostabi.LogWarn, Text: "to standard error"},
		{Source: wasm.SourceLog, Level: hostabi.LogWarn, Text: "to the log"},
	}}
	if diff := cmp.Diff(want, a.Log); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestLog_IsBounded(t *testing.T) {
	p := stockPolicy(t, wasm.Options{LogBytes: 1000})
	a, err := p.EvaluateMetered(t.Context(), ask("flood", 1000))
	if err != nil {
		t.Fatal(err)
	}
	if kept := len(a.Log.Lines); kept < 10 || kept > 30 || a.Log.Dropped < 5000 {
		t.Errorf("%d lines were kept and %d bytes dropped", kept, a.Log.Dropped)
	}
}
