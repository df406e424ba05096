package loop

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/memo"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/writelimit"
	"github.com/gleaner-dev/gleaner/policies"
)

// limited is a Loop that lets each policy write once a second.
func limited(now *time.Time) *Loop {
	l := unconnected(Options{Log: logr.Discard()}, func() time.Time { return *now })
	rate := writelimit.Rate{PerSecond: 1, Burst: 1}
	l.limits = limits{states: writelimit.New(rate, rate), told: writelimit.New(rate, rate)}
	return l
}

var flooding = consult.Opinion{By: &policies.Policy{Kind: "GCPolicy", Namespace: "ns", Name: "flood"}}

func TestStates_OfAPolicyAreWrittenAtABoundedRate(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l, written := limited(&now), 0
	for i := range 60_000 { // in a minute
		o := graph.Object{Namespace: "ns", UID: "uid"}
		plan := decide.Plan{Reason: decide.WaitsByPolicy, After: time.Second, Action: decide.Remember{Object: o, Memo: memo.Memo{UID: "uid", Attempt: i}}}
		got := l.limit(flooding, decide.Judgement{Remembered: memo.Memo{UID: "uid"}, Attempt: i}, plan)
		switch {
		case got.Action != nil:
			written++
		case got.Reason != decide.PolicyLimited || got.After < time.Second || got.After > 64*time.Second:
			t.Fatalf("planned: %+v", got)
		}
		now = now.Add(time.Millisecond)
	}
	if written < 59 || written > 61 {
		t.Errorf("%d states were written in a minute; want one a second", written)
	}
}

// The first state of an object says since when it has had no owner, and what was decided
// is carried out: there is one of them for each object.
func TestWritesThatAreMadeOnce_AreNotLimited(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l := limited(&now)
	o := graph.Object{Namespace: "ns", UID: "uid"}
	for claim, c := range map[string]struct {
		judgement decide.Judgement
		plan      decide.Plan
	}{
		"the first state": {decide.Judgement{}, decide.Plan{After: time.Second, Action: decide.Remember{Object: o}}},
		"a decision":      {decide.Judgement{Remembered: memo.Memo{UID: "uid"}}, decide.Plan{Reason: decide.PropagationDecided, Action: decide.Remember{Object: o}}},
		"a delete":        {decide.Judgement{Remembered: memo.Memo{UID: "uid"}}, decide.Plan{Action: decide.Delete{Object: o}}},
	} {
		for range 100 {
			if got := l.limit(flooding, c.judgement, c.plan); got.Action == nil {
				t.Fatalf("%s: %+v", claim, got)
			}
		}
	}
}

func TestLog_OfAPolicyThatDecidesAnewAllTheTimeIsBounded(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l, told := limited(&now), 0
	for i := range 6000 { // in a minute
		e := record.Entry{
			Time: now, Policy: "GCPolicy ns/flood", Action: record.None, Reason: decide.WaitsByPolicy,
			Object: record.Object{Namespace: "ns"}, Asked: []record.Asked{{Decision: string(hostabi.DecisionWait), Reason: fmt.Sprint(i)}},
		}
		if l.tells(e) {
			told++
		}
		if e.Action = record.Delete; !l.tells(e) {
			t.Fatal("a delete is not told")
		}
		now = now.Add(10 * time.Millisecond)
	}
	if told < 59 || told > 61 {
		t.Errorf("%d lines in a minute; want one a second", told)
	}
}
