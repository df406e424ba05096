package recorder

import (
	"fmt"
	"testing"
	"time"

	eventrecord "k8s.io/client-go/tools/record"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/writelimit"
)

func TestLog_OfAPolicyThatDecidesAllTheTimeIsBounded(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rate, reported := writelimit.Rate{PerSecond: 1, Burst: 1}, 0
	r := New(Options{Limiter: writelimit.New(rate, rate), Now: func() time.Time { return now }})
	for i := range 6000 { // in a minute
		e := record.Entry{
			Time: now, Policy: "GCPolicy ns/flood", Action: record.None, Reason: decide.PolicyWaiting,
			Object: record.Object{Namespace: "ns"}, Evaluations: []record.Evaluation{{Decision: string(hostabi.DecisionWait), Reason: fmt.Sprint(i)}},
		}
		if r.announces(e) {
			reported++
		}
		if e.Action = record.Delete; !r.announces(e) {
			t.Fatal("a delete is not announced")
		}
		now = now.Add(10 * time.Millisecond)
	}
	if reported < 59 || reported > 61 {
		t.Errorf("%d lines in a minute; want one a second", reported)
	}
}

// A decision about dependents is saved and then carried out. One event is enough, for what was
// done.
func TestRaiseEvent_OnceForADecisionAboutDependents(t *testing.T) {
	events := eventrecord.NewFakeRecorder(10)
	r := New(Options{Events: events})
	for _, action := range []record.Action{record.SaveState, record.Propagate} {
		r.raiseEvent(graph.Object{}, record.Entry{Reason: decide.PropagationDecided, Action: action, Result: string(act.Done)})
	}
	r.raiseEvent(graph.Object{}, record.Entry{Reason: decide.PolicyWaiting, Action: record.SaveState, Result: string(act.Done)})
	if n := len(events.Events); n != 2 {
		t.Errorf("%d events; want one for the decision, and one for the wait", n)
	}
}
