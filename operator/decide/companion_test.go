package decide_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
)

// Over all combinations of statuses, states and verdicts: in companion mode nothing is
// written without a policy, and nothing is deleted that would not be deleted in primary mode.
func TestChooseCompanion_WritesOnlyWhatPoliciesDecide(t *testing.T) {
	verdicts := []hostabi.Verdict{{}, toDelete, {Decision: hostabi.DecisionOrphan}, {Decision: hostabi.DecisionBackground}}
	deletes := 0
	for _, c := range combinations() {
		for bits := range 128 {
			for _, v := range verdicts {
				f := facts(c...)
				f.Object.Terminating, f.Object.Foreground, f.Object.Orphan = bits&1 != 0, bits&2 != 0, bits&4 != 0
				f.Confirmed, f.Dependents = bits&8 != 0, bits>>4&1
				s, j := decide.Classify(f), decide.PolicyResult{Verdict: v, MatchesDefault: bits&32 != 0, Attempt: 2}
				if v.Decision != hostabi.DecisionOrphan { // which only policies return
					if got := decide.ChooseCompanion(s, j); got.Action != nil {
						t.Errorf("owners %v, object %+v, verdict %+v: %+v", c, f.Object, v, got)
					}
				}
				j.Enforced, j.KeptBefore = true, bits&64 != 0
				if _, is := decide.ChooseCompanion(s, j).Action.(decide.Delete); is {
					deletes++
					if _, would := decide.Choose(s, j).Action.(decide.Delete); !would {
						t.Errorf("owners %v, object %+v, verdict %+v: deleted", c, f.Object, v)
					}
				}
			}
		}
	}
	if deletes == 0 {
		t.Error("nothing was ever deleted: the test is ineffective")
	}
}

func TestChooseCompanion_LeavesOwnerlessObjectsToTheCollectorFirst(t *testing.T) {
	f := facts(decide.Absent)
	own := decide.Plan{Reason: decide.OwnersAbsent, Action: decide.Delete{Object: f.Object, Propagation: "Background"}}
	for name, c := range map[string]struct {
		result decide.PolicyResult
		want   decide.Plan
	}{
		"no policy governs it":                               {decide.PolicyResult{MatchesDefault: true}, decide.Plan{}},
		"a policy in Monitor mode governs it":                {decide.PolicyResult{MatchesDefault: true, Monitored: true}, decide.Plan{Reason: decide.LeftToCollector}},
		"a policy decides the default":                       {decide.PolicyResult{MatchesDefault: true, Enforced: true, Attempt: 1}, decide.Plan{Reason: decide.LeftToCollector, RequeueAfter: 10 * time.Second}},
		"and it still exists after that":                     {decide.PolicyResult{MatchesDefault: true, Enforced: true, Attempt: 2}, own},
		"no policy governs it, but its delete may be denied": {decide.PolicyResult{MatchesDefault: true, MaybeDenied: true, Attempt: 1}, decide.Plan{RequeueAfter: 10 * time.Second}},
		"and it still exists after that, too":                {decide.PolicyResult{MatchesDefault: true, MaybeDenied: true, Attempt: 2}, own},
		"a policy decides another propagation":               {decide.PolicyResult{Enforced: true, Attempt: 1}, own},
		"a policy had kept it, and now deletes it":           {decide.PolicyResult{MatchesDefault: true, Enforced: true, KeptBefore: true, Attempt: 1}, own},
		"a policy had kept it, and no longer governs it":     {decide.PolicyResult{MatchesDefault: true, KeptBefore: true, Attempt: 1}, own},
		"policies are not known yet, so it is kept":          {decide.PolicyResult{Fault: true}, decide.Plan{Retry: true}},
	} {
		t.Run(name, func(t *testing.T) {
			c.result.Verdict = toDelete
			if diff := cmp.Diff(c.want, decide.ChooseCompanion(decide.Classify(f), c.result)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// The built-in collector acts on changes, and its watch may not show the change to an object
// that is the same afterward: then it would wait forever.
func TestChooseCompanion_RequestsOrphaningAgainAfterATimeout(t *testing.T) {
	remembered := objectstate.State{UID: "object", Propagation: &objectstate.Propagation{Decision: "Orphan"}}
	o := graph.Object{UID: "object", ResourceVersion: "7", Name: "object", Terminating: true, Held: true, HasState: true, Orphan: true}
	j := decide.PolicyResult{Verdict: hostabi.Verdict{Decision: hostabi.DecisionOrphan}, ByPolicy: true, State: remembered, StoredState: remembered, Attempt: 2}
	want := decide.Plan{Reason: decide.PropagationDecided, Action: decide.RemoveFinalizer{Object: o, Finalizer: "orphan"}}
	for _, dependents := range []int{0, 1} {
		got := decide.ChooseCompanion(decide.Classify(decide.Facts{Object: o, Dependents: dependents}), j)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d dependents: plan (-want +got):\n%s", dependents, diff)
		}
	}
}

// The built-in garbage collector removes its finalizer while the hold is being removed.
func TestChooseCompanion_RemovesTheHoldAfterAClientRequest(t *testing.T) {
	asked := graph.Object{UID: "object", ResourceVersion: "7", Name: "object", Terminating: true, Held: true, Orphan: true}
	want := decide.Plan{Reason: decide.HoldReleased, Action: decide.RemoveFinalizer{Object: asked, Finalizer: graph.Hold, IgnoreChanges: true}}
	j := decide.PolicyResult{Verdict: hostabi.Verdict{Decision: hostabi.DecisionOrphan}}
	if diff := cmp.Diff(want, decide.ChooseCompanion(decide.Classify(decide.Facts{Object: asked, Dependents: 1}), j)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	primary := decide.Choose(decide.Classify(decide.Facts{Object: asked, Dependents: 1}), j)
	if r, ok := primary.Action.(decide.RemoveFinalizer); !ok || r.IgnoreChanges {
		t.Errorf("in primary mode the plan is %+v", primary)
	}
}

func TestChooseCompanion_KeepsTheHoldWhileDependentsRemain(t *testing.T) {
	remembered := objectstate.State{UID: "object", Propagation: &objectstate.Propagation{Decision: "Orphan"}}
	held := graph.Object{UID: "object", ResourceVersion: "7", Name: "object", Terminating: true, Held: true, HasState: true}
	sent := held
	sent.Orphan = true
	for name, c := range map[string]struct {
		facts    decide.Facts
		decision hostabi.Decision
		want     decide.Plan
	}{
		"dependents remain: orphaning is requested": {decide.Facts{Object: held, Dependents: 1}, hostabi.DecisionOrphan,
			decide.Plan{Reason: decide.PropagationDecided, Action: decide.Propagate{Object: held, Propagation: "Orphan"}}},
		"orphaning is in progress: wait": {decide.Facts{Object: sent, Dependents: 1}, hostabi.DecisionOrphan,
			decide.Plan{Reason: decide.LeftToCollector, RequeueAfter: 30 * time.Second}},
		"none is left in the graph: list them": {decide.Facts{Object: held}, hostabi.DecisionOrphan,
			decide.Plan{Reason: decide.DependentsUnconfirmed, ConfirmDependents: true}},
		"the list failed: retry": {decide.Facts{Object: held, ConfirmError: "no answer"}, hostabi.DecisionOrphan,
			decide.Plan{Reason: decide.DependentsUnreadable, Retry: true}},
		"none is left: remove the hold": {decide.Facts{Object: held, Confirmed: true}, hostabi.DecisionOrphan,
			decide.Plan{Reason: decide.HoldReleased, Action: decide.RemoveFinalizer{Object: held, Finalizer: graph.Hold}}},
		"a new one: orphaning is requested again": {decide.Facts{Object: held, Confirmed: true, Dependents: 1}, hostabi.DecisionOrphan,
			decide.Plan{Reason: decide.PropagationDecided, Action: decide.Propagate{Object: held, Propagation: "Orphan"}}},
		"no blocking dependents: remove the hold": {decide.Facts{Object: held, Dependents: 1}, hostabi.DecisionForeground,
			decide.Plan{Reason: decide.HoldReleased, Action: decide.RemoveFinalizer{Object: held, Finalizer: graph.Hold}}},
	} {
		t.Run(name, func(t *testing.T) {
			j := decide.PolicyResult{Verdict: hostabi.Verdict{Decision: c.decision}, ByPolicy: true, State: remembered, StoredState: remembered}
			if diff := cmp.Diff(c.want, decide.ChooseCompanion(decide.Classify(c.facts), j)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}
