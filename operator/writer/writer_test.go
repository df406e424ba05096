package writer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

// journal is what happens during a write, in order.
type journal []string

// step returns a step that writes to the journal.
func (j *journal) step(name string, answer writer.Admission) *fakeStep {
	return &fakeStep{journal: j, name: name, answer: answer}
}

// write returns a write whose call is in the journal.
func (j *journal) write(result act.Result, err error) writer.Write {
	return writer.Write{
		Origin: writer.Collector, Effect: writer.Deletes,
		Target: graph.Object{Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: "ns", Name: "p"},
		Do: func(context.Context) (act.Result, error) {
			*j = append(*j, "call")
			return result, err
		},
	}
}

// fakeStep is a step with a fixed answer.
type fakeStep struct {
	journal *journal
	name    string
	answer  writer.Admission
	err     error
	settled context.Context
}

func (s *fakeStep) Admit(context.Context, writer.Write) (writer.Admission, error) {
	*s.journal = append(*s.journal, "admit "+s.name)
	return s.answer, s.err
}

func (s *fakeStep) Settle(ctx context.Context, _ writer.Write, end writer.Settlement) {
	s.settled = ctx
	*s.journal = append(*s.journal, fmt.Sprintf("settle %s: sent=%t result=%q err=%v", s.name, end.Sent, end.Result, end.Err))
}

var pass = writer.Admission{Outcome: writer.Pass}

func (j *journal) expect(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, []string(*j)); diff != "" {
		t.Error(diff)
	}
}

func TestWriter_AsksStepsInOrderBeforeTheCall(t *testing.T) {
	var j journal
	w := writer.Writer{Steps: []writer.Step{j.step("a", pass), j.step("b", pass)}}
	if result, err := w.Do(t.Context(), j.write(act.AlreadyGone, nil)); result != act.AlreadyGone || err != nil {
		t.Errorf("the result is %q, %v", result, err)
	}
	j.expect(t, "admit a", "admit b", "call", `settle b: sent=true result="AlreadyGone" err=<nil>`, `settle a: sent=true result="AlreadyGone" err=<nil>`)
}

func TestWriter_StopsAtTheFirstStepThatDoesNotPass(t *testing.T) {
	for claim, c := range map[string]struct {
		answer writer.Admission
		result act.Result
		waits  bool
		reason string // empty: no error
	}{
		"wait":                     {writer.Admission{Outcome: writer.Wait, Reason: "later"}, act.Failed, true, "write to Pod ns/p: stopped: later"},
		"refuse":                   {writer.Admission{Outcome: writer.Refuse, Reason: "never"}, act.Failed, false, "write to Pod ns/p: stopped: never"},
		"changed":                  {writer.Admission{Outcome: writer.Changed, Reason: "differs"}, act.Changed, false, ""},
		"the zero admission":       {writer.Admission{}, act.Failed, false, "write to Pod ns/p: stopped: *writer_test.fakeStep gave no reason"},
		"a reason without outcome": {writer.Admission{Reason: "may pass"}, act.Failed, false, "write to Pod ns/p: stopped: may pass"},
		"an unknown outcome":       {writer.Admission{Outcome: "pass", Reason: "lower case"}, act.Failed, false, "write to Pod ns/p: stopped: lower case"},
	} {
		t.Run(claim, func(t *testing.T) {
			var j journal
			w := writer.Writer{Steps: []writer.Step{j.step("a", pass), j.step("b", c.answer), j.step("c", pass)}}
			result, err := w.Do(t.Context(), j.write(act.Done, nil))
			stopped := (*writer.StoppedError)(nil)
			switch {
			case result != c.result || writer.IsWait(err) != c.waits:
				t.Errorf("the result is %q, %v", result, err)
			case c.reason == "" && err != nil, c.reason != "" && (!errors.As(err, &stopped) || err.Error() != c.reason):
				t.Errorf("the error is %v, want %s", err, c.reason)
			}
			j.expect(t, "admit a", "admit b", `settle a: sent=false result="" err=<nil>`)
		})
	}
}

func TestWriter_StopsAfterAnErrorOfAStep(t *testing.T) {
	var j journal
	broken := j.step("b", pass)
	broken.err = errors.New("no answer")
	w := writer.Writer{Steps: []writer.Step{j.step("a", pass), broken}}
	result, err := w.Do(t.Context(), j.write(act.Done, nil))
	if result != act.Failed || !errors.Is(err, broken.err) || writer.IsWait(err) {
		t.Errorf("the result is %q, %v", result, err)
	}
	j.expect(t, "admit a", "admit b", `settle a: sent=false result="" err=<nil>`)
}

func TestWriter_StopsUnknownEffects(t *testing.T) {
	for _, effect := range []writer.Effect{"", "delete", "Deletes"} {
		for _, dryRun := range []bool{false, true} {
			var j journal
			write := j.write(act.Done, nil)
			write.Effect = effect
			result, err := writer.Writer{Steps: []writer.Step{j.step("a", pass)}, DryRun: dryRun}.Do(t.Context(), write)
			if result != act.Failed || err == nil || !strings.Contains(err.Error(), fmt.Sprintf("unknown effect %q", effect)) {
				t.Errorf("%q: the result is %q, %v", effect, result, err)
			}
			j.expect(t)
		}
	}
}

func TestWriter_WithoutStepsWritesNothing(t *testing.T) {
	var j journal
	if result, err := (writer.Writer{}).Do(t.Context(), j.write(act.Done, nil)); result != act.Failed || err == nil {
		t.Errorf("the result is %q, %v", result, err)
	}
	j.expect(t)
}

func TestWriter_DryRunAsksNoStep(t *testing.T) {
	var j journal
	w := writer.Writer{Steps: []writer.Step{j.step("a", writer.Admission{})}, DryRun: true}
	if result, err := w.Do(t.Context(), j.write(act.Done, nil)); result != act.DryRun || err != nil {
		t.Errorf("the result is %q, %v", result, err)
	}
	j.expect(t)
}

func TestWriter_SettlesInReverseOrderAfterAFailure(t *testing.T) {
	var j journal
	a, b := j.step("a", pass), j.step("b", pass)
	failure := errors.New("timeout")
	ctx, cancel := context.WithCancel(t.Context())
	write := j.write(act.Failed, failure)
	do := write.Do
	write.Do = func(ctx context.Context) (act.Result, error) { cancel(); return do(ctx) }
	result, err := writer.Writer{Steps: []writer.Step{a, b}}.Do(ctx, write)
	if result != act.Failed || !errors.Is(err, failure) {
		t.Errorf("the result is %q, %v", result, err)
	}
	j.expect(t, "admit a", "admit b", "call", `settle b: sent=true result="" err=timeout`, `settle a: sent=true result="" err=timeout`)
	for _, s := range []*fakeStep{a, b} {
		if s.settled == nil || s.settled.Err() != nil {
			t.Errorf("step %s is settled with a context that has ended", s.name)
		}
	}
}

func TestWriter_SettlesAfterAPanic(t *testing.T) {
	var j journal
	write := j.write(act.Done, nil)
	write.Do = func(context.Context) (act.Result, error) { panic("bug") }
	func() {
		defer func() { _ = recover() }()
		_, _ = writer.Writer{Steps: []writer.Step{j.step("a", pass), j.step("b", pass)}}.Do(t.Context(), write)
	}()
	j.expect(t, "admit a", "admit b", `settle b: sent=true result="" err=<nil>`, `settle a: sent=true result="" err=<nil>`)
}

func TestGateStep_AdmitsWhatTheRequirementAllows(t *testing.T) {
	lapsed := errors.New("not renewed in time")
	for claim, c := range map[string]struct {
		leads bool
		probe gate.Probe
		lease error
		want  []writer.Requirement // those that are met
	}{
		"a new gate":                     {},
		"open without a leader":          {probe: gate.Open, want: []writer.Requirement{writer.OpenGate}}, // a simulation
		"leading before the probe":       {leads: true, want: []writer.Requirement{writer.Leadership}},
		"leading, with another one":      {leads: true, probe: gate.Shut, want: []writer.Requirement{writer.Leadership}},
		"leading and open":               {leads: true, probe: gate.Open, want: []writer.Requirement{writer.OpenGate, writer.Leadership}},
		"leading, with a lapsed lease":   {leads: true, probe: gate.Open, lease: lapsed},
		"not probed, with a lapse":       {leads: true, lease: lapsed},
		"open, with neither of the two ": {probe: gate.Open, lease: lapsed},
	} {
		t.Run(claim, func(t *testing.T) {
			var g gate.Gate
			g.SetLease(func() error { return c.lease })
			if c.leads {
				g.Lead()
			}
			g.SetProbe(c.probe)
			for _, needs := range []writer.Requirement{writer.OpenGate, writer.Leadership} {
				want := writer.Admission{Outcome: writer.Wait, Reason: "this replica may not write now"}
				if slices.Contains(c.want, needs) {
					want = pass
				}
				got, err := writer.GateStep{Gate: &g, Needs: needs}.Admit(t.Context(), writer.Write{})
				if err != nil || got != want {
					t.Errorf("%s: %+v, %v; want %+v", needs, got, err, want)
				}
			}
		})
	}
}

func TestGateStep_WithoutARequirementStops(t *testing.T) {
	var g gate.Gate
	g.Lead()
	g.SetProbe(gate.Open)
	if got, err := (writer.GateStep{Gate: &g}).Admit(t.Context(), writer.Write{}); err != nil || got != (writer.Admission{}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestGateStep_IsAskedForEachWrite(t *testing.T) {
	var (
		g gate.Gate
		j journal
	)
	g.SetProbe(gate.Open)
	w := writer.Writer{Steps: []writer.Step{writer.GateStep{Gate: &g, Needs: writer.OpenGate}}}
	if result, err := w.Do(t.Context(), j.write(act.Done, nil)); result != act.Done || err != nil {
		t.Fatalf("the result is %q, %v", result, err)
	}
	g.Follow()
	if result, err := w.Do(t.Context(), j.write(act.Done, nil)); result != act.Failed || !writer.IsWait(err) {
		t.Errorf("after the gate was closed: %q, %v", result, err)
	}
	j.expect(t, "call")
}
