package decide_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/memo"
)

// Over every combination of standings, states and verdicts: beside another collector
// nothing is written that nobody asked for, and nothing is deleted that would not be
// deleted in its place.
func TestBesideAnotherCollectorNothingIsWrittenThatNoPolicyAsksFor(t *testing.T) {
	verdicts := []hostabi.Verdict{{}, toDelete, {Decision: hostabi.DecisionOrphan}, {Decision: hostabi.DecisionBackground}}
	deletes := 0
	for _, c := range combinations() {
		for bits := range 128 {
			for _, v := range verdicts {
				f := facts(c...)
				f.Object.Terminating, f.Object.Foreground, f.Object.Orphan = bits&1 != 0, bits&2 != 0, bits&4 != 0
				f.Confirmed, f.Dependents = bits&8 != 0, bits>>4&1
				s, j := decide.Classify(f), decide.Judgement{Verdict: v, Usual: bits&32 != 0, Attempt: 2}
				if v.Decision != hostabi.DecisionOrphan { // which is the word of a policy, always
					if got := decide.Beside(s, j); got.Action != nil {
						t.Errorf("owners %v, object %+v, verdict %+v: %+v", c, f.Object, v, got)
					}
				}
				j.Contested, j.Kept = true, bits&64 != 0
				if _, is := decide.Beside(s, j).Action.(decide.Delete); is {
					deletes++
					if _, would := decide.Choose(s, j).Action.(decide.Delete); !would {
						t.Errorf("owners %v, object %+v, verdict %+v: deleted", c, f.Object, v)
					}
				}
			}
		}
	}
	if deletes == 0 {
		t.Error("nothing was ever deleted: this test shows nothing")
	}
}

func TestBesideAnotherCollectorAnObjectWithoutOwnersIsLeftToItFirst(t *testing.T) {
	f := facts(decide.Absent)
	ours := decide.Plan{Reason: decide.OwnersAbsent, Action: decide.Delete{Object: f.Object, Propagation: "Background"}}
	for name, c := range map[string]struct {
		judgement decide.Judgement
		want      decide.Plan
	}{
		"no policy was asked":                              {decide.Judgement{Usual: true}, decide.Plan{}},
		"a policy was asked that changes nothing":          {decide.Judgement{Usual: true, Watched: true}, decide.Plan{Reason: decide.LeftToCollector}},
		"a policy has it go as usual":                      {decide.Judgement{Usual: true, Contested: true, Attempt: 1}, decide.Plan{Reason: decide.LeftToCollector, After: 10 * time.Second}},
		"and it is still there after that":                 {decide.Judgement{Usual: true, Contested: true, Attempt: 2}, ours},
		"no policy governs it, but the API server may ask": {decide.Judgement{Usual: true, Refusable: true, Attempt: 1}, decide.Plan{After: 10 * time.Second}},
		"and it is still there after that, too":            {decide.Judgement{Usual: true, Refusable: true, Attempt: 2}, ours},
		"a policy has it go in another way":                {decide.Judgement{Contested: true, Attempt: 1}, ours},
		"a policy had kept it, and has it go now":          {decide.Judgement{Usual: true, Contested: true, Kept: true, Attempt: 1}, ours},
		"a policy had kept it, and does not govern it":     {decide.Judgement{Usual: true, Kept: true, Attempt: 1}, ours},
		"the policies have not been read, so it is kept":   {decide.Judgement{Fault: true}, decide.Plan{Retry: true}},
	} {
		t.Run(name, func(t *testing.T) {
			c.judgement.Verdict = toDelete
			if diff := cmp.Diff(c.want, decide.Beside(decide.Classify(f), c.judgement)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// The other collector takes its finalizer off while the hold is still being taken off.
func TestBesideAnotherCollectorTheHoldComesOffWhateverHasChangedOnceAClientHasAsked(t *testing.T) {
	asked := graph.Object{UID: "object", ResourceVersion: "7", Name: "object", Terminating: true, Held: true, Orphan: true}
	want := decide.Plan{Reason: decide.HoldReleased, Action: decide.RemoveFinalizer{Object: asked, Finalizer: graph.Hold, Regardless: true}}
	j := decide.Judgement{Verdict: hostabi.Verdict{Decision: hostabi.DecisionOrphan}}
	if diff := cmp.Diff(want, decide.Beside(decide.Classify(decide.Facts{Object: asked, Dependents: 1}), j)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	alone := decide.Choose(decide.Classify(decide.Facts{Object: asked, Dependents: 1}), j)
	if r, ok := alone.Action.(decide.RemoveFinalizer); !ok || r.Regardless {
		t.Errorf("without another collector the plan is %+v", alone)
	}
}

func TestBesideAnotherCollectorTheHoldStaysUntilNoDependentIsLeft(t *testing.T) {
	remembered := memo.Memo{UID: "object", Propagation: &memo.Propagation{Decision: "Orphan"}}
	held := graph.Object{UID: "object", ResourceVersion: "7", Name: "object", Terminating: true, Held: true, Memo: true}
	sent := held
	sent.Orphan = true
	for name, c := range map[string]struct {
		facts    decide.Facts
		decision hostabi.Decision
		want     decide.Plan
	}{
		"dependents are left: the collector is sent": {decide.Facts{Object: held, Dependents: 1}, hostabi.DecisionOrphan,
			decide.Plan{Reason: decide.PropagationDecided, Action: decide.Propagate{Object: held, Propagation: "Orphan"}}},
		"it is at work: that is waited for": {decide.Facts{Object: sent, Dependents: 1}, hostabi.DecisionOrphan,
			decide.Plan{Reason: decide.LeftToCollector}},
		"none is left, as far as is known: they are looked for": {decide.Facts{Object: held}, hostabi.DecisionOrphan,
			decide.Plan{Reason: decide.DependentsUnconfirmed, Confirm: true}},
		"they could not be looked for: that is done again": {decide.Facts{Object: held, Unconfirmed: "no answer"}, hostabi.DecisionOrphan,
			decide.Plan{Reason: decide.DependentsUnreadable, Retry: true}},
		"none is left, for certain: it is let go": {decide.Facts{Object: held, Confirmed: true}, hostabi.DecisionOrphan,
			decide.Plan{Reason: decide.HoldReleased, Action: decide.RemoveFinalizer{Object: held, Finalizer: graph.Hold}}},
		"one has come meanwhile: the collector is sent again": {decide.Facts{Object: held, Confirmed: true, Dependents: 1}, hostabi.DecisionOrphan,
			decide.Plan{Reason: decide.PropagationDecided, Action: decide.Propagate{Object: held, Propagation: "Orphan"}}},
		"it has waited for all that block it: it is let go": {decide.Facts{Object: held, Dependents: 1}, hostabi.DecisionForeground,
			decide.Plan{Reason: decide.HoldReleased, Action: decide.RemoveFinalizer{Object: held, Finalizer: graph.Hold}}},
	} {
		t.Run(name, func(t *testing.T) {
			j := decide.Judgement{Verdict: hostabi.Verdict{Decision: c.decision}, Decided: true, Memo: remembered, Remembered: remembered}
			if diff := cmp.Diff(c.want, decide.Beside(decide.Classify(c.facts), j)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}
