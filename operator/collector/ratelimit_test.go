package collector

import (
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/graphstore"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/writelimit"
	"github.com/gleaner-dev/gleaner/policies"
)

// limited returns a Collector that lets each policy write once a second.
func limited(now *time.Time) *Collector {
	rate := writelimit.Rate{PerSecond: 1, Burst: 1}
	return New(Options{
		Store: graphstore.New(time.Now), StateLimiter: writelimit.New(rate, rate), Recorder: discard{}, Now: func() time.Time { return *now },
	})
}

// discard is a Recorder that records nothing.
type discard struct{}

func (discard) Record(Outcome)                              {}
func (discard) RecordWithheld(...*modulecall.WithheldError) {}
func (discard) RecordStateLimited(string)                   {}

var flooding = evaluate.Result{DecidedBy: &policies.Policy{Kind: "GCPolicy", Namespace: "ns", Name: "flood"}}

func TestLimit_BoundsStateWritesOfAPolicy(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c, written := limited(&now), 0
	for i := range 60_000 { // in a minute
		o := graph.Object{Namespace: "ns", UID: "uid"}
		plan := decide.Plan{Reason: decide.PolicyWaiting, RequeueAfter: time.Second, Action: decide.SaveState{Object: o, State: objectstate.State{UID: "uid", Attempt: i}}}
		got := c.limit(Decision{Evaluation: flooding, Result: decide.PolicyResult{StoredState: objectstate.State{UID: "uid"}, Attempt: i}, Plan: plan})
		switch {
		case got.Action != nil:
			written++
		case got.Reason != decide.PolicyRateLimited || got.RequeueAfter < time.Second || got.RequeueAfter > 64*time.Second:
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
func TestLimit_IgnoresWritesThatHappenOnce(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	limited := limited(&now)
	o := graph.Object{Namespace: "ns", UID: "uid"}
	for claim, c := range map[string]struct {
		result decide.PolicyResult
		plan   decide.Plan
	}{
		"the first state": {decide.PolicyResult{}, decide.Plan{RequeueAfter: time.Second, Action: decide.SaveState{Object: o}}},
		"a decision":      {decide.PolicyResult{StoredState: objectstate.State{UID: "uid"}}, decide.Plan{Reason: decide.PropagationDecided, Action: decide.SaveState{Object: o}}},
		"a delete":        {decide.PolicyResult{StoredState: objectstate.State{UID: "uid"}}, decide.Plan{Action: decide.Delete{Object: o}}},
	} {
		for range 100 {
			if got := limited.limit(Decision{Evaluation: flooding, Result: c.result, Plan: c.plan}); got.Action == nil {
				t.Fatalf("%s: %+v", claim, got)
			}
		}
	}
}
