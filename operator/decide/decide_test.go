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
	"github.com/gleaner-dev/gleaner/operator/objectstate"
)

var (
	statuses = []decide.OwnerStatus{
		decide.Unknown, decide.Present, decide.Absent, decide.Waiting, decide.Orphaning, decide.Unresolvable,
		decide.Unresolvable + 1, // not a valid one
	}
	toDelete = hostabi.Verdict{Decision: hostabi.DecisionDelete, Propagation: hostabi.PropagationBackground}
)

// facts are about an object with one owner reference of each status.
func facts(statuses ...decide.OwnerStatus) decide.Facts {
	f := decide.Facts{Object: graph.Object{UID: "object", ResourceVersion: "7", Name: "object"}}
	for i, s := range statuses {
		ref := metav1.OwnerReference{UID: types.UID(rune('a' + i)), Name: string(rune('a' + i))}
		f.Object.Owners = append(f.Object.Owners, ref)
		f.Owners = append(f.Owners, decide.Owner{Reference: ref, Status: s})
	}
	return f
}

func plan(f decide.Facts, v hostabi.Verdict) decide.Plan {
	return decide.Choose(decide.Classify(f), decide.PolicyResult{Verdict: v})
}

// combinations returns every combination of up to three statuses.
func combinations() [][]decide.OwnerStatus {
	all := [][]decide.OwnerStatus{{}}
	for i := 0; i < len(all); i++ {
		if len(all[i]) == 3 {
			continue
		}
		for _, s := range statuses {
			all = append(all, append(append([]decide.OwnerStatus{}, all[i]...), s))
		}
	}
	return all
}

// Over all combinations of statuses, states of the object and verdicts: an object is
// deleted only if it is not being deleted, all its owners are lost, and there is a complete
// verdict to delete. The delete has the object of the facts.
func TestChoose_NoDeleteWithPresentOrUnreadOwners(t *testing.T) {
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
		t.Error("nothing was ever deleted: the test is ineffective")
	}
}

// G-58, over all combinations: the finalizer of an owner in foreground deletion is never
// removed while a dependent blocks it.
func TestChoose_KeepsTheFinalizerOfABlockedOwner(t *testing.T) {
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
				t.Errorf("owners %v, %d dependents block it, confirmed: %t: finalizer removed", c, f.Blocking, f.Confirmed)
			}
		}
	}
	if released == 0 {
		t.Error("no finalizer was ever removed: the test is ineffective")
	}
}

func allLost(statuses []decide.OwnerStatus) bool {
	for _, s := range statuses {
		if s != decide.Absent && s != decide.Waiting {
			return false
		}
	}
	return len(statuses) != 0
}

// Over all combinations: a reference is removed only if its owner is lost or orphans the
// object, never if it is present or was not read.
func TestChoose_KeepsReferencesToPresentOrUnreadOwners(t *testing.T) {
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

func TestClassify_KeepsOnMismatchedFacts(t *testing.T) {
	f := facts(decide.Absent, decide.Absent)
	f.Owners = f.Owners[:1] // the other one was not read
	if got := plan(f, toDelete); got.Action != nil || !got.Retry {
		t.Errorf("got %+v", got)
	}
}

// The facts about an object with too many owners are incomplete.
func TestChoose_KeepsAnObjectWithTooManyOwners(t *testing.T) {
	truncated, unread := facts(decide.Absent), facts(decide.Absent, decide.Unknown)
	truncated.Object.Truncated = true
	unread.UnreadOwners = 1
	for _, f := range []decide.Facts{truncated, unread} {
		if diff := cmp.Diff(decide.Plan{Reason: decide.TooManyOwners, Retry: true}, plan(f, toDelete)); diff != "" {
			t.Error(diff)
		}
	}
}

// The owner that was deleted last decides, in whichever order the deletions are processed.
func TestClassify_TheLastOwnerDecidesWhetherADependentIsKept(t *testing.T) {
	orphaning := func(version uint64) decide.Owner {
		return decide.Owner{Status: decide.Orphaning, DeletionVersion: version}
	}
	absent := func(version uint64) decide.Owner {
		return decide.Owner{Status: decide.Absent, DeletionVersion: version}
	}
	for name, c := range map[string]struct {
		owners []decide.Owner
		want   int // references that are removed
	}{
		"the other was deleted before":                  {[]decide.Owner{absent(5), orphaning(7)}, 2},
		"the other was deleted after":                   {[]decide.Owner{absent(9), orphaning(7)}, 1},
		"one before and one after":                      {[]decide.Owner{absent(5), orphaning(7), absent(9)}, 2},
		"between two that orphan":                       {[]decide.Owner{orphaning(7), absent(9), orphaning(11)}, 3},
		"it is not known when the other was deleted":    {[]decide.Owner{absent(0), orphaning(7)}, 2},
		"it is not known when the one that orphans was": {[]decide.Owner{absent(9), orphaning(0)}, 2},
		"another is present":                            {[]decide.Owner{orphaning(7), {Status: decide.Present}}, 1},
		"another could not be read":                     {[]decide.Owner{orphaning(7), {}}, 1},
		"another waits for its dependents":              {[]decide.Owner{orphaning(7), {Status: decide.Waiting}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := decide.Classify(decide.Facts{Owners: c.owners})
			if s.Kind != decide.HasOrphaningOwner || len(s.References) != c.want {
				t.Errorf("%d references of kind %d, want %d", len(s.References), s.Kind, c.want)
			}
			s = decide.Classify(decide.Facts{Owners: c.owners, Object: graph.Object{Terminating: true}})
			if removed := len(s.References); removed == 0 || removed > c.want {
				t.Errorf("%d references of a terminating object are removed", removed)
			}
		})
	}
}

func TestClassify(t *testing.T) {
	for name, c := range map[string]struct {
		facts  decide.Facts
		change func(*decide.Facts)
		want   decide.Kind
	}{
		"the zero facts need no action":                              {decide.Facts{}, nil, decide.Settled},
		"G-44: an object without owners is left alone":               {facts(), nil, decide.Settled},
		"G-45: an unread owner blocks the decision":                  {facts(decide.Present, decide.Absent, decide.Unknown), nil, decide.HasUnreadableOwner},
		"G-34: an unresolvable owner blocks it forever":              {facts(decide.Absent, decide.Unresolvable), nil, decide.HasUnresolvableOwner},
		"G-47: one owner is present":                                 {facts(decide.Present), nil, decide.Settled},
		"G-47: one is present and others are lost":                   {facts(decide.Present, decide.Absent, decide.Waiting), nil, decide.PartlyOwned},
		"G-49: all are lost":                                         {facts(decide.Absent, decide.Waiting), nil, decide.Ownerless},
		"G-66: an owner that orphans comes first":                    {facts(decide.Orphaning, decide.Unknown), nil, decide.HasOrphaningOwner},
		"G-66: for objects being deleted, too":                       {facts(decide.Orphaning), terminating, decide.HasOrphaningOwner},
		"G-42: an object being deleted is left alone":                {facts(decide.Absent), terminating, decide.Settled},
		"G-58: it waits for blocking dependents":                     {facts(), foreground(2, false), decide.WaitsForDependents},
		"G-63, 3.16: none are left in the graph":                     {facts(), foreground(0, false), decide.Unconfirmed},
		"G-58: none are left":                                        {facts(), foreground(0, true), decide.DoneWaiting},
		"G-23: orphan takes precedence":                              {facts(), both, decide.ReleasesOrphans},
		"G-67: no dependents are left to orphan":                     {facts(), orphan(0, true), decide.DoneOrphaning},
		"3.17: but that must be confirmed":                           {facts(), orphan(0, false), decide.Unconfirmed},
		"G-59: it waits for itself":                                  {facts(), cyclic, decide.WaitsForItself},
		"G-42: foregroundDeletion without deletion means nothing":    {facts(), unterminated, decide.Settled},
		"G-49: nor does it for an object without owners":             {facts(decide.Absent), unterminated, decide.Ownerless},
		"an invalid status counts as unread":                         {facts(decide.Absent, decide.Unresolvable+1), nil, decide.HasUnreadableOwner},
		"G-62: a waiting owner does not count if another is present": {facts(decide.Waiting, decide.Present), nil, decide.PartlyOwned},
		"G-48: a waiting owner alone does":                           {facts(decide.Waiting), nil, decide.Ownerless},
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
	failed.ConfirmError = "list pods: no"
	polled := facts(decide.Present)
	polled.Owners[0].Unwatched = true
	elsewhere := facts(decide.Absent)
	elsewhere.Owners[0].ActualNamespace = "other"
	grace := int64(3)
	withGrace := toDelete
	withGrace.GracePeriodSeconds = &grace
	for name, c := range map[string]struct {
		facts   decide.Facts
		verdict hostabi.Verdict
		want    decide.Plan
	}{
		"G-50: delete the object of the facts": {lost, withGrace, decide.Plan{Reason: decide.OwnersAbsent, Action: decide.Delete{
			Object: object(lost), Propagation: metav1.DeletePropagationBackground, GracePeriodSeconds: &grace}}},
		"no verdict keeps the object": {lost, hostabi.Verdict{}, decide.Plan{Reason: decide.NoDecision, Retry: true}},
		"a policy keeps it for good": {lost, hostabi.Verdict{Decision: hostabi.DecisionOrphan}, decide.Plan{Reason: decide.KeptByPolicy,
			Action: decide.DropReferences{Object: object(lost), References: lost.Object.Owners}}},
		"a policy keeps it for now": {lost, hostabi.Verdict{Decision: hostabi.DecisionWait}, decide.Plan{Reason: decide.PolicyWaiting, RequeueAfter: 30 * time.Second}},
		"G-47: exactly the lost references are dropped": {partly, toDelete, decide.Plan{Reason: decide.OwnerRemains,
			Action: decide.DropReferences{Object: object(partly), References: partly.Object.Owners[1:]}}},
		"G-57: the finalizer is removed": {done, toDelete, decide.Plan{Reason: decide.DependentsGone,
			Action: decide.RemoveFinalizer{Object: object(done), Finalizer: "foregroundDeletion"}}},
		"an owner is kept while its dependents cannot be listed": {failed, toDelete, decide.Plan{Reason: decide.DependentsUnreadable, Retry: true}},
		"G-40: an owner that is not watched is read again":       {polled, toDelete, decide.Plan{Retry: true}},
		"G-33: a reference into another namespace is reported": {elsewhere, hostabi.Verdict{},
			decide.Plan{Reason: decide.NoDecision, Retry: true, WrongNamespaceOwners: elsewhere.Owners}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, plan(c.facts, c.verdict)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Results of policies for an object without owners.
func TestChoose_Ownerless(t *testing.T) {
	ownersAbsentSince := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	known := objectstate.New("object", nil, ownersAbsentSince)
	delayed := toDelete
	delayed.Delay = hostabi.Duration(time.Hour)
	waits := hostabi.Verdict{Decision: hostabi.DecisionWait, After: hostabi.Duration(time.Minute)}
	lost := facts(decide.Absent)
	remember := decide.SaveState{Object: lost.Object, State: known}
	gone := decide.Delete{Object: lost.Object, Propagation: metav1.DeletePropagationBackground}
	for claim, c := range map[string]struct {
		result decide.PolicyResult
		want   decide.Plan
	}{
		"a fault keeps it regardless of the verdict": {decide.PolicyResult{Verdict: toDelete, Fault: true},
			decide.Plan{Reason: decide.PolicyFault, Retry: true}},
		"a delay starts by storing the state": {decide.PolicyResult{Verdict: delayed, State: known, Now: ownersAbsentSince},
			decide.Plan{Reason: decide.DelayedByPolicy, RequeueAfter: time.Hour, Action: remember}},
		"a stored delay takes the remaining time": {decide.PolicyResult{Verdict: delayed, State: known, StoredState: known, Now: ownersAbsentSince.Add(50 * time.Minute)},
			decide.Plan{Reason: decide.DelayedByPolicy, RequeueAfter: 10 * time.Minute}},
		"a delay that is over deletes": {decide.PolicyResult{Verdict: delayed, State: known, StoredState: known, Now: ownersAbsentSince.Add(time.Hour)},
			decide.Plan{Reason: decide.OwnersAbsent, Action: gone}},
		"without a start time the whole delay remains": {decide.PolicyResult{Verdict: delayed, Now: ownersAbsentSince},
			decide.Plan{Reason: decide.DelayedByPolicy, RequeueAfter: time.Hour}},
		"a clock that went back does not extend the delay": {decide.PolicyResult{Verdict: delayed, State: known, StoredState: known, Now: ownersAbsentSince.Add(-time.Hour)},
			decide.Plan{Reason: decide.DelayedByPolicy, RequeueAfter: time.Hour}},
		"a wait is stored, too": {decide.PolicyResult{Verdict: waits, State: known, Now: ownersAbsentSince},
			decide.Plan{Reason: decide.PolicyWaiting, RequeueAfter: time.Minute, Action: remember}},
		"and stored once": {decide.PolicyResult{Verdict: waits, State: known, StoredState: known, Now: ownersAbsentSince},
			decide.Plan{Reason: decide.PolicyWaiting, RequeueAfter: time.Minute}},
	} {
		t.Run(claim, func(t *testing.T) {
			if diff := cmp.Diff(c.want, decide.Choose(decide.Classify(lost), c.result)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestChoose_RemovesObsoleteState(t *testing.T) {
	for claim, f := range map[string]decide.Facts{"an owner": facts(decide.Present), "no references left": facts()} {
		f.Object.HasState = true
		if diff := cmp.Diff(decide.Plan{Reason: decide.StateObsolete, Action: decide.RemoveState{Object: f.Object}}, plan(f, toDelete)); diff != "" {
			t.Error(claim, diff)
		}
		f.Object.Terminating = true
		if got := plan(f, toDelete); got.Action != nil {
			t.Errorf("%s, and being deleted: %+v", claim, got)
		}
	}
	for _, s := range []decide.OwnerStatus{decide.Unknown, decide.Unresolvable} {
		f := facts(s)
		f.Object.HasState = true
		if got := plan(f, toDelete); got.Action != nil {
			t.Errorf("%s: %+v", s, got)
		}
	}
}
