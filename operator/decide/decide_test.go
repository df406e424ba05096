package decide_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/memo"
)

var (
	standings = []decide.Standing{
		decide.Unknown, decide.Present, decide.Absent, decide.Waiting, decide.Orphaning, decide.Unresolvable,
		decide.Unresolvable + 1, // not one of them
	}
	toDelete = hostabi.Verdict{Decision: hostabi.DecisionDelete, Propagation: hostabi.PropagationBackground}
)

// facts are about an object with one owner reference of each standing.
func facts(standings ...decide.Standing) decide.Facts {
	f := decide.Facts{Object: graph.Object{UID: "object", ResourceVersion: "7", Name: "object"}}
	for i, s := range standings {
		ref := metav1.OwnerReference{UID: types.UID(rune('a' + i)), Name: string(rune('a' + i))}
		f.Object.Owners = append(f.Object.Owners, ref)
		f.Owners = append(f.Owners, decide.Owner{Reference: ref, Standing: s})
	}
	return f
}

func plan(f decide.Facts, v hostabi.Verdict) decide.Plan {
	return decide.Choose(decide.Classify(f), decide.Judgement{Verdict: v})
}

// combinations returns every combination of up to three standings.
func combinations() [][]decide.Standing {
	all := [][]decide.Standing{{}}
	for i := 0; i < len(all); i++ {
		if len(all[i]) == 3 {
			continue
		}
		for _, s := range standings {
			all = append(all, append(append([]decide.Standing{}, all[i]...), s))
		}
	}
	return all
}

// Over every combination of standings, states of the object and verdicts: a
// delete happens only to an object that is not being deleted, all of whose
// owners are lost, and only on a complete verdict to delete; and it insists on
// the object that was judged.
func TestNoDeleteWhileAnOwnerStandsOrIsUnread(t *testing.T) {
	verdicts := []hostabi.Verdict{
		{}, toDelete, {Decision: hostabi.DecisionDelete}, {Decision: hostabi.DecisionDelete, Propagation: "Sideways"},
		{Decision: hostabi.DecisionOrphan}, {Decision: hostabi.DecisionWait}, {Decision: hostabi.DecisionAbstain},
		{Decision: "Destroy", Propagation: hostabi.PropagationBackground},
	}
	deletes := 0
	for _, c := range combinations() {
		for bits := range 32 {
			for _, v := range verdicts {
				f := facts(c...)
				f.Object.Terminating, f.Object.Foreground, f.Object.Orphan = bits&1 != 0, bits&2 != 0, bits&4 != 0
				f.Confirmed, f.Blocking = bits&8 != 0, bits>>4
				d, deleted := plan(f, v).Action.(decide.Delete)
				if !deleted {
					continue
				}
				deletes++
				if f.Object.Terminating || !cmp.Equal(v, toDelete) || !allLost(c) {
					t.Errorf("owners %v, object %+v, verdict %+v: deleted", c, f.Object, v)
				}
				if d.Object.UID != "object" || d.Object.ResourceVersion != "7" {
					t.Errorf("owners %v: deletes %+v", c, d.Object)
				}
			}
		}
	}
	if deletes == 0 {
		t.Error("nothing was ever deleted: this test shows nothing")
	}
}

// G-58, over every combination: an owner that is deleted in the foreground is never let go
// while a dependent blocks it, whatever else is known.
func TestNoOwnerIsLetGoWhileADependentBlocksIt(t *testing.T) {
	released := 0
	for _, c := range combinations() {
		for bits := range 64 {
			f := facts(c...)
			f.Object.Terminating, f.Object.Foreground, f.Object.Orphan = true, bits&1 != 0, bits&2 != 0
			f.Confirmed, f.Dependents, f.Blocking = bits&4 != 0, bits>>3&1, bits>>4
			removed, ok := plan(f, toDelete).Action.(decide.RemoveFinalizer)
			if !ok || removed.Finalizer != metav1.FinalizerDeleteDependents {
				continue
			}
			if released++; f.Blocking != 0 {
				t.Errorf("owners %v, %d dependents block it, confirmed: %t: it is let go", c, f.Blocking, f.Confirmed)
			}
		}
	}
	if released == 0 {
		t.Error("no owner was ever let go: this test shows nothing")
	}
}

func allLost(standings []decide.Standing) bool {
	for _, s := range standings {
		if s != decide.Absent && s != decide.Waiting {
			return false
		}
	}
	return len(standings) != 0
}

// Over every combination: a reference is dropped only if its owner is lost or
// takes leave, never if it stands or was not read.
func TestNoReferenceIsDroppedWhoseOwnerStandsOrIsUnread(t *testing.T) {
	for _, c := range combinations() {
		for _, v := range []hostabi.Verdict{{}, toDelete, {Decision: hostabi.DecisionOrphan}} {
			f := facts(c...)
			drop, ok := plan(f, v).Action.(decide.DropReferences)
			if !ok {
				continue
			}
			for _, ref := range drop.References {
				s := c[ref.Name[0]-'a']
				if s != decide.Absent && s != decide.Waiting && s != decide.Orphaning {
					t.Errorf("owners %v: reference to %s dropped", c, ref.Name)
				}
			}
		}
	}
}

func TestFactsThatDoNotMatchTheObjectKeepIt(t *testing.T) {
	f := facts(decide.Absent, decide.Absent)
	f.Owners = f.Owners[:1] // the other one was never looked at
	if got := plan(f, toDelete); got.Action != nil || !got.Retry {
		t.Errorf("got %+v", got)
	}
}

// What is known of an object with too many owners is not all that there is to know.
func TestAnObjectWithTooManyOwnersStays(t *testing.T) {
	truncated, unread := facts(decide.Absent), facts(decide.Absent, decide.Unknown)
	truncated.Object.Truncated = true
	unread.Unread = 1
	for _, f := range []decide.Facts{truncated, unread} {
		if diff := cmp.Diff(decide.Plan{Reason: decide.TooManyOwners, Retry: true}, plan(f, toDelete)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestClassify(t *testing.T) {
	for name, c := range map[string]struct {
		facts  decide.Facts
		change func(*decide.Facts)
		want   decide.Kind
	}{
		"the zero facts ask for nothing":                              {decide.Facts{}, nil, decide.Settled},
		"G-44: an object without owners is left alone":                {facts(), nil, decide.Settled},
		"G-45: an unread owner holds the decision, whatever the rest": {facts(decide.Present, decide.Absent, decide.Unknown), nil, decide.OwnerUnreadable},
		"G-34: an owner that can never be found holds it for good":    {facts(decide.Absent, decide.Unresolvable), nil, decide.OwnerNeverFound},
		"G-47: one owner stands":                                      {facts(decide.Present), nil, decide.Settled},
		"G-47: one stands and others are lost":                        {facts(decide.Present, decide.Absent, decide.Waiting), nil, decide.PartlyOwned},
		"G-49: all are lost":                                          {facts(decide.Absent, decide.Waiting), nil, decide.Ownerless},
		"G-66: an owner that orphans comes first":                     {facts(decide.Orphaning, decide.Unknown), nil, decide.LeftByOwner},
		"G-66: for objects being deleted, too":                        {facts(decide.Orphaning), terminating, decide.LeftByOwner},
		"G-42: an object being deleted is left alone":                 {facts(decide.Absent), terminating, decide.Settled},
		"G-58: it waits for blocking dependents":                      {facts(), foreground(2, false), decide.AwaitsDependents},
		"G-63, 3.16: none are left, as far as the graph knows":        {facts(), foreground(0, false), decide.Unconfirmed},
		"G-58: none are left":                                         {facts(), foreground(0, true), decide.DoneWaiting},
		"G-23: orphan is looked at first":                             {facts(), both, decide.ReleasesOrphans},
		"G-67: nobody is left to take leave of":                       {facts(), orphan(0, true), decide.DoneOrphaning},
		"3.17: but that has to be confirmed":                          {facts(), orphan(0, false), decide.Unconfirmed},
		"G-59: it waits for itself":                                   {facts(), cyclic, decide.AwaitsItself},
		"G-42: foregroundDeletion without deletion means nothing":     {facts(), unterminated, decide.Settled},
		"G-49: nor does it for an object whose owners are lost":       {facts(decide.Absent), unterminated, decide.Ownerless},
		"a standing that nobody knows is no known one":                {facts(decide.Absent, decide.Unresolvable+1), nil, decide.OwnerUnreadable},
		"G-62: a waiting owner does not count beside one that stands": {facts(decide.Waiting, decide.Present), nil, decide.PartlyOwned},
		"G-48: a waiting owner alone does":                            {facts(decide.Waiting), nil, decide.Ownerless},
	} {
		t.Run(name, func(t *testing.T) {
			if c.change != nil {
				c.change(&c.facts)
			}
			if got := decide.Classify(c.facts).Kind; got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func terminating(f *decide.Facts)  { f.Object.Terminating = true }
func unterminated(f *decide.Facts) { f.Object.Foreground = true }

func foreground(blocking int, confirmed bool) func(*decide.Facts) {
	return func(f *decide.Facts) {
		f.Object.Terminating, f.Object.Foreground = true, true
		f.Dependents, f.Blocking, f.Confirmed = 3, blocking, confirmed
	}
}

func orphan(dependents int, confirmed bool) func(*decide.Facts) {
	return func(f *decide.Facts) {
		f.Object.Terminating, f.Object.Orphan = true, true
		f.Dependents, f.Confirmed = dependents, confirmed
	}
}

func both(f *decide.Facts) {
	foreground(1, true)(f)
	f.Object.Orphan = true
}

func cyclic(f *decide.Facts) {
	foreground(1, true)(f)
	f.Cycle = &graph.Edge{}
}

func TestChoose(t *testing.T) {
	object := func(f decide.Facts) graph.Object { return f.Object }
	lost := facts(decide.Absent)
	partly := facts(decide.Present, decide.Absent)
	done := facts()
	foreground(0, true)(&done)
	failed := facts()
	foreground(0, false)(&failed)
	failed.Unconfirmed = "list pods: no"
	polled := facts(decide.Present)
	polled.Owners[0].Polled = true
	far := facts(decide.Absent)
	far.Owners[0].Elsewhere = "other"
	grace := int64(3)
	withGrace := toDelete
	withGrace.GracePeriodSeconds = &grace
	for name, c := range map[string]struct {
		facts   decide.Facts
		verdict hostabi.Verdict
		want    decide.Plan
	}{
		"G-50: delete what was judged": {lost, withGrace, decide.Plan{Reason: decide.OwnersAbsent, Action: decide.Delete{
			Object: object(lost), Propagation: metav1.DeletePropagationBackground, GracePeriodSeconds: &grace}}},
		"a silent policy keeps the object": {lost, hostabi.Verdict{}, decide.Plan{Reason: decide.PolicySilent, Retry: true}},
		"a policy keeps it for good": {lost, hostabi.Verdict{Decision: hostabi.DecisionOrphan}, decide.Plan{Reason: decide.KeptByPolicy,
			Action: decide.DropReferences{Object: object(lost), References: lost.Object.Owners}}},
		"a policy keeps it for now": {lost, hostabi.Verdict{Decision: hostabi.DecisionWait}, decide.Plan{Reason: decide.WaitsByPolicy, After: 30 * time.Second}},
		"G-47: exactly the lost references are dropped": {partly, toDelete, decide.Plan{Reason: decide.OwnerRemains,
			Action: decide.DropReferences{Object: object(partly), References: partly.Object.Owners[1:]}}},
		"G-57: the finalizer goes": {done, toDelete, decide.Plan{Reason: decide.DependentsGone,
			Action: decide.RemoveFinalizer{Object: object(done), Finalizer: "foregroundDeletion"}}},
		"an owner is held while its dependents can't be listed": {failed, toDelete, decide.Plan{Reason: decide.DependentsUnreadable, Retry: true}},
		"G-40: an owner that no watch shows is asked for again": {polled, toDelete, decide.Plan{Retry: true}},
		"G-33: a reference into another namespace is told of": {far, hostabi.Verdict{},
			decide.Plan{Reason: decide.PolicySilent, Retry: true, Misplaced: far.Owners}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, plan(c.facts, c.verdict)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What the policies say of an object without owners, beside a plain verdict.
func TestJudgementsOnAnObjectWithoutOwners(t *testing.T) {
	noticed := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	known := memo.New("object", nil, noticed)
	delayed := toDelete
	delayed.Delay = hostabi.Duration(time.Hour)
	waits := hostabi.Verdict{Decision: hostabi.DecisionWait, After: hostabi.Duration(time.Minute)}
	lost := facts(decide.Absent)
	remember := decide.Remember{Object: lost.Object, Memo: known}
	gone := decide.Delete{Object: lost.Object, Propagation: metav1.DeletePropagationBackground}
	for claim, c := range map[string]struct {
		judgement decide.Judgement
		want      decide.Plan
	}{
		"a policy at fault holds it, whatever it said": {decide.Judgement{Verdict: toDelete, Fault: true},
			decide.Plan{Reason: decide.PolicyAtFault, Retry: true}},
		"a delay begins by remembering since when": {decide.Judgement{Verdict: delayed, Memo: known, Now: noticed},
			decide.Plan{Reason: decide.DelayedByPolicy, After: time.Hour, Action: remember}},
		"a delay that is remembered takes what is left of it": {decide.Judgement{Verdict: delayed, Memo: known, Remembered: known, Now: noticed.Add(50 * time.Minute)},
			decide.Plan{Reason: decide.DelayedByPolicy, After: 10 * time.Minute}},
		"a delay that is over is none": {decide.Judgement{Verdict: delayed, Memo: known, Remembered: known, Now: noticed.Add(time.Hour)},
			decide.Plan{Reason: decide.OwnersAbsent, Action: gone}},
		"while nobody knows since when, all of the delay is left": {decide.Judgement{Verdict: delayed, Now: noticed},
			decide.Plan{Reason: decide.DelayedByPolicy, After: time.Hour}},
		"a clock that went back makes no delay longer than it is": {decide.Judgement{Verdict: delayed, Memo: known, Remembered: known, Now: noticed.Add(-time.Hour)},
			decide.Plan{Reason: decide.DelayedByPolicy, After: time.Hour}},
		"to wait is remembered, too": {decide.Judgement{Verdict: waits, Memo: known, Now: noticed},
			decide.Plan{Reason: decide.WaitsByPolicy, After: time.Minute, Action: remember}},
		"and written once": {decide.Judgement{Verdict: waits, Memo: known, Remembered: known, Now: noticed},
			decide.Plan{Reason: decide.WaitsByPolicy, After: time.Minute}},
	} {
		t.Run(claim, func(t *testing.T) {
			if diff := cmp.Diff(c.want, decide.Choose(decide.Classify(lost), c.judgement)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAMemoGoesOnceTheObjectHasAnOwnerAgainOrNeedsNone(t *testing.T) {
	for claim, f := range map[string]decide.Facts{"an owner": facts(decide.Present), "no references left": facts()} {
		f.Object.Memo = true
		if diff := cmp.Diff(decide.Plan{Reason: decide.MemoObsolete, Action: decide.Forget{Object: f.Object}}, plan(f, toDelete)); diff != "" {
			t.Error(claim, diff)
		}
		f.Object.Terminating = true
		if got := plan(f, toDelete); got.Action != nil {
			t.Errorf("%s, and being deleted: %+v", claim, got)
		}
	}
	for _, s := range []decide.Standing{decide.Unknown, decide.Unresolvable} {
		f := facts(s)
		f.Object.Memo = true
		if got := plan(f, toDelete); got.Action != nil {
			t.Errorf("%s: %+v", s, got)
		}
	}
}
