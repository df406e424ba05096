package record_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/record"
)

func objectNamed(name string) record.Object {
	return record.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: name, UID: types.UID(name)}
}

func owner(name, status string) record.Owner {
	return record.Owner{Object: objectNamed(name), Status: status, Message: "its deletion was observed"}
}

// deleted returns the entry of an object that was deleted because its owners are absent.
func deleted(name string, owners ...string) record.Entry {
	e := record.Entry{Object: objectNamed(name), Reason: decide.OwnersAbsent, Action: record.Delete, Detail: "Background", Result: "Done"}
	for _, o := range owners {
		e.Owners = append(e.Owners, owner(o, "Absent"))
	}
	return e
}

// withoutAction returns an entry without an action.
func withoutAction(name string, reason decide.Reason) record.Entry {
	return record.Entry{Object: objectNamed(name), Reason: reason, Action: record.None, Owners: []record.Owner{owner("o", "Unknown")}}
}

func names(entries []record.Entry) []string {
	var all []string
	for _, e := range entries {
		all = append(all, e.Object.Name)
	}
	return all
}

func TestStore_EvictsTheOldestEntry(t *testing.T) {
	s := record.NewStore(record.Limits{MaxEntries: 3})
	for _, c := range []struct {
		add  string
		want []string
	}{
		{"a", []string{"a"}}, {"b", []string{"a", "b"}}, {"c", []string{"a", "b", "c"}},
		{"d", []string{"b", "c", "d"}}, {"a", []string{"c", "d", "a"}}, {"a", []string{"d", "a", "a"}}, {"e", []string{"a", "a", "e"}},
	} {
		s.Add(deleted(c.add))
		if diff := cmp.Diff(c.want, names(s.Entries(""))); diff != "" {
			t.Errorf("after %s: %s", c.add, diff)
		}
	}
}

func TestStore_EntriesOfOneObject(t *testing.T) {
	s := record.NewStore(record.Limits{MaxEntries: 8})
	first, second := withoutAction("a", decide.OwnersUnreadable), deleted("a")
	s.Add(first)
	s.Add(deleted("b"))
	s.Add(second)
	got := s.Entries("a")
	for i := range got {
		got[i].Chain = nil
	}
	if diff := cmp.Diff([]record.Entry{first, second}, got); diff != "" {
		t.Error(diff)
	}
	if got := s.Entries("nobody"); len(got) != 0 {
		t.Errorf("entries of an unknown object: %v", got)
	}
}

// An object that is stuck has one record, until something about the decision changes or
// something is written.
func TestStore_RepeatedDecisionIsStoredOnce(t *testing.T) {
	change := func(change func(*record.Entry)) record.Entry {
		e := withoutAction("a", decide.OwnersUnreadable)
		change(&e)
		return e
	}
	failed := deleted("a")
	failed.Result, failed.Error = "Failed", "denied by a webhook"
	dry := deleted("a", "o")
	dry.Result = "DryRun"
	dryOrphan := dry
	dryOrphan.Detail = "Orphan"
	s := record.NewStore(record.Limits{MaxEntries: 32})
	for _, c := range []struct {
		name  string
		entry record.Entry
		want  bool
	}{
		{"the first decision", withoutAction("a", decide.OwnersUnreadable), true},
		{"the same again", withoutAction("a", decide.OwnersUnreadable), false},
		{"the same, later", change(func(e *record.Entry) { e.Time, e.Duration = time.Unix(9, 0), time.Second }), false},
		{"the same, of a newer object", change(func(e *record.Entry) { e.Object.ResourceVersion = "9" }), false},
		{"another object", withoutAction("b", decide.OwnersUnreadable), true},
		{"another reason", withoutAction("a", decide.OwnersUnresolvable), true},
		{"the first reason again", withoutAction("a", decide.OwnersUnreadable), true},
		{"another owner status", change(func(e *record.Entry) { e.Owners[0].Status = "Present" }), true},
		{"one more owner", change(func(e *record.Entry) { e.Owners = append(e.Owners, owner("p", "Present")) }), true},
		{"another cause", change(func(e *record.Entry) { e.Message = "forbidden" }), true},
		{"a write that failed", failed, true},
		{"and failed again", failed, true},
		{"what a dry run would do", dry, true},
		{"and would do again", dry, false},
		{"another action in a dry run", dryOrphan, true},
	} {
		kept, isNew := s.Add(c.entry)
		if isNew != c.want {
			t.Errorf("%s: new is %t", c.name, isNew)
		}
		if kept.Object.Name != c.entry.Object.Name || kept.Reason != c.entry.Reason {
			t.Errorf("%s: returned %s", c.name, kept)
		}
	}
}

// An evicted entry neither suppresses repeated ones nor appears in a chain.
func TestStore_EvictedEntryLeavesTheIndexes(t *testing.T) {
	s := record.NewStore(record.Limits{MaxEntries: 2})
	s.Add(withoutAction("a", decide.OwnersUnreadable))
	s.Add(deleted("b"))
	s.Add(deleted("c")) // in place of a
	if _, isNew := s.Add(withoutAction("a", decide.OwnersUnreadable)); !isNew {
		t.Error("a repeats an entry that is not kept any more")
	}
	s.Add(deleted("d"))
	got, _ := s.Add(deleted("child", "b"))
	if diff := cmp.Diff([]record.Link{{Owner: owner("b", "Absent")}}, got.Chain); diff != "" {
		t.Error(diff)
	}
}

// link returns a step of a chain with an owner that Gleaner deleted, and last one with
// an owner that it did not delete.
func link(name string) record.Link {
	return record.Link{Owner: owner(name, "Absent"), DeletedReason: "OwnersAbsent"}
}

func last(name string) record.Link { return record.Link{Owner: owner(name, "Absent")} }

// Defect 3.24: the deletion of an object is explained by that of its owner, and so on up to
// the request of a client.
func TestChain_FollowsDeletesOfGleaner(t *testing.T) {
	present := deleted("child", "first", "second")
	present.Owners[0].Status = "Present"
	for name, c := range map[string]struct {
		before []record.Entry
		entry  record.Entry
		want   []record.Link
	}{
		"an owner that a client deleted": {nil, deleted("child", "a"), []record.Link{last("a")}},
		"an owner that Gleaner deleted": {[]record.Entry{deleted("a", "b")}, deleted("child", "a"),
			[]record.Link{link("a"), last("b")}},
		"three generations": {[]record.Entry{deleted("b", "c"), deleted("a", "b")}, deleted("child", "a"),
			[]record.Link{link("a"), link("b"), last("c")}},
		"an owner with a later decision than its delete": {
			[]record.Entry{deleted("a", "b"), withoutAction("a", decide.DependentsRemain)}, deleted("child", "a"),
			[]record.Link{link("a"), last("b")}},
		"an owner that is only stuck":      {[]record.Entry{withoutAction("a", decide.DependentsRemain)}, deleted("child", "a"), []record.Link{last("a")}},
		"a present owner is not the cause": {nil, present, []record.Link{last("second")}},
		"no owner is lost":                 {nil, deleted("child"), nil},
		"an object without dependents":     {nil, record.Entry{Object: objectNamed("owner"), Action: record.RemoveFinalizer, Owners: []record.Owner{owner("a", "Absent")}}, nil},
		"an unblocked owner":               {nil, record.Entry{Object: objectNamed("owner"), Action: record.Unblock, Owners: []record.Owner{owner("a", "Absent")}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := record.NewStore(record.Limits{MaxEntries: 8})
			for _, e := range c.before {
				s.Add(e)
			}
			got, _ := s.Add(c.entry)
			if diff := cmp.Diff(c.want, got.Chain); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A delete that did not happen explains nothing.
func TestChain_EndsAtADeleteThatFailed(t *testing.T) {
	for _, result := range []string{"Failed", "Changed", "DryRun"} {
		t.Run(result, func(t *testing.T) {
			s := record.NewStore(record.Limits{MaxEntries: 8})
			e := deleted("a", "b")
			e.Result = result
			s.Add(e)
			got, _ := s.Add(deleted("child", "a"))
			if diff := cmp.Diff([]record.Link{last("a")}, got.Chain); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Objects that own each other make a chain without end.
func TestChain_EndsOnACycle(t *testing.T) {
	s := record.NewStore(record.Limits{MaxEntries: 8})
	s.Add(deleted("a", "b"))
	s.Add(deleted("b", "a"))
	got, _ := s.Add(deleted("a", "b"))
	var names []string
	for _, l := range got.Chain {
		names = append(names, l.Owner.Object.Name)
	}
	if len(names) == 0 || len(names) > 16 {
		t.Errorf("a chain of %d: %v", len(names), names)
	}
}

func TestEntry_String(t *testing.T) {
	with := func(action record.Action, detail string, reason decide.Reason, chain ...record.Link) record.Entry {
		return record.Entry{Object: objectNamed("child"), Action: action, Detail: detail, Reason: reason, Chain: chain}
	}
	cluster := with(record.None, "", decide.OwnersUnreadable)
	cluster.Object.Namespace, cluster.Object.Kind = "", "Node"
	for want, e := range map[string]record.Entry{
		"ConfigMap ns/child: deleted (Background), since ConfigMap ns/a is absent (its deletion was observed)": with(record.Delete, "Background", decide.OwnersAbsent, last("a")),
		"ConfigMap ns/child: deleted (Foreground), since ConfigMap ns/a is waiting":                            with(record.Delete, "Foreground", decide.OwnersWaiting, record.Link{Owner: record.Owner{Object: objectNamed("a"), Status: "Waiting"}}),
		"ConfigMap ns/child: reference to ConfigMap a dropped, OwnerRemains":                                   with(record.DropReferences, "ConfigMap a", decide.OwnerRemains),
		"ConfigMap ns/child: finalizer orphan removed, DependentsOrphaned":                                     with(record.RemoveFinalizer, "orphan", decide.DependentsOrphaned),
		"ConfigMap ns/child: owner of ConfigMap ns/d unblocked, OwnershipCycle":                                with(record.Unblock, "ConfigMap ns/d", decide.OwnershipCycle),
		"ConfigMap ns/child: the built-in garbage collector may delete it, DeletedByCollector":                 with(record.None, "", decide.DeletedByCollector),
		"Node child: unchanged, OwnerUnreadable":                                                               cluster,
	} {
		if diff := cmp.Diff(want, e.String()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestActionOf(t *testing.T) {
	object := graph.Object{UID: "u", Kind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Namespace: "ns", Name: "web"}
	refs := []metav1.OwnerReference{{Kind: "ConfigMap", Name: "a"}, {Kind: "Node", Name: "n"}}
	for name, c := range map[string]struct {
		action decide.Action
		word   record.Action
		detail string
	}{
		"none":       {nil, record.None, ""},
		"delete":     {decide.Delete{Object: object, Propagation: metav1.DeletePropagationOrphan}, record.Delete, "Orphan"},
		"references": {decide.DropReferences{Object: object, References: refs}, record.DropReferences, "ConfigMap a, Node n"},
		"finalizer":  {decide.RemoveFinalizer{Object: object, Finalizer: "orphan"}, record.RemoveFinalizer, "orphan"},
		"wait":       {decide.SaveState{Object: object}, record.SaveState, "propagation policy not decided yet"},
		"unblock":    {decide.Unblock{Object: object}, record.Unblock, "Deployment ns/web"},
	} {
		t.Run(name, func(t *testing.T) {
			word, detail := record.ActionOf(c.action)
			if word != c.word || detail != c.detail {
				t.Errorf("%s %q, want %s %q", word, detail, c.word, c.detail)
			}
		})
	}
}

func TestOwnersOf(t *testing.T) {
	facts := decide.Facts{
		Object: graph.Object{Namespace: "ns"},
		Owners: []decide.Owner{
			{Reference: metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "a"}, Status: decide.Absent, Message: "its deletion was observed"},
			{Reference: metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "d", UID: "d"}, Status: decide.Waiting},
		},
	}
	want := []record.Owner{
		owner("a", "Absent"),
		{Object: record.Object{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "ns", Name: "d", UID: "d"}, Status: "Waiting"},
	}
	if diff := cmp.Diff(want, record.OwnersOf(facts)); diff != "" {
		t.Error(diff)
	}
}

func TestEntry_SurvivesJSON(t *testing.T) {
	want := deleted("child", "a")
	want.Time, want.Duration, want.Chain = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Second, []record.Link{link("a"), last("b")}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got record.Entry
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Many concurrent writers and readers, for the race detector. The indexes are still
// correct after the ring has wrapped many times.
func TestStore_ConcurrentUse(t *testing.T) {
	s := record.NewStore(record.Limits{MaxEntries: 16})
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 200 {
				name := fmt.Sprintf("%d-%d", w, i%7)
				s.Add(deleted(name, fmt.Sprintf("%d-%d", w, (i+1)%7)))
				s.Add(withoutAction(name, decide.OwnersUnreadable))
				for _, e := range s.Entries(types.UID(name)) {
					if e.Object.Name != name {
						t.Errorf("an entry of %s among those of %s", e.Object.Name, name)
					}
				}
			}
		})
	}
	all.Wait()
	if got := len(s.Entries("")); got != 16 {
		t.Errorf("%d entries are kept", got)
	}
}

func Test3_29_EntryContainsBlockers(t *testing.T) {
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	facts := decide.Facts{Blockers: []graph.Blocker{
		{Object: graph.Coordinates{UID: "1", Kind: pod, Namespace: "ns", Name: "idle"}},
		{Object: graph.Coordinates{UID: "2", Kind: pod, Namespace: "ns", Name: "held"}, Terminating: true, HasFinalizers: true},
	}}
	e := record.Entry{
		Object: objectNamed("owner"), Action: record.None, Reason: decide.DependentsRemain,
		Blockers: record.BlockersOf(facts), Blocking: 12,
	}
	want := e.Object.String() + ": unchanged, DependentsRemain, waits for Pod ns/idle (not being deleted yet)" +
		", waits for Pod ns/held (being deleted, waiting for its finalizers) and 10 more"
	if diff := cmp.Diff(want, e.String()); diff != "" {
		t.Error(diff)
	}
	s := record.NewStore(record.Limits{MaxEntries: 8})
	s.Add(e)
	if _, isNew := s.Add(e); isNew {
		t.Error("the same wait is recorded twice")
	}
	e.Blockers = e.Blockers[:1]
	if _, isNew := s.Add(e); !isNew {
		t.Error("another wait is not recorded")
	}
}

// A module that has failed permanently is not evaluated again on every reconciliation.
func TestStore_RepeatWithoutEvaluationIsNotStored(t *testing.T) {
	s := record.NewStore(record.Limits{MaxEntries: 8})
	evaluated := record.Entry{Object: objectNamed("a"), Action: record.None, Detail: "example.com/a", Reason: "FinalizerFailed", Message: "it is not empty",
		Evaluations: []record.Evaluation{{Policy: "Finalizer ns/a", Decision: "Fail", Reason: "it is not empty"}}}
	s.Add(evaluated)
	known := evaluated
	known.Evaluations = nil
	if _, isNew := s.Add(known); isNew {
		t.Error("the failure is recorded again without a new evaluation")
	}
	known.Message = "it is full"
	if _, isNew := s.Add(known); !isNew {
		t.Error("another failure is not recorded")
	}
}

func TestStore_LastEvicted(t *testing.T) {
	s, at := record.NewStore(record.Limits{MaxEntries: 2}), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 4 {
		if evicted := s.LastEvicted(); i < 3 && !evicted.IsZero() {
			t.Errorf("after %d entries one of %s is evicted", i, evicted)
		}
		s.Add(record.Entry{Time: at.Add(time.Duration(i) * time.Minute), Object: record.Object{UID: types.UID(strconv.Itoa(i))}, Action: record.Delete})
	}
	if want := at.Add(time.Minute); !s.LastEvicted().Equal(want) {
		t.Errorf("evicted up to %s, want %s", s.LastEvicted(), want)
	}
}

func TestEntry_ShowsTheGracePeriod(t *testing.T) {
	seconds := int64(90)
	for want, action := range map[string]decide.Action{
		"deleted (Background, grace period 90s)":                        decide.Delete{Propagation: "Background", GracePeriodSeconds: &seconds},
		"deleted (Background),":                                         decide.Delete{Propagation: "Background"},
		"state saved: propagation policy Foreground, grace period 90s,": decide.SaveState{State: objectstate.State{Propagation: &objectstate.Propagation{Decision: "Foreground", GracePeriodSeconds: &seconds}}},
	} {
		e := record.Entry{Object: objectNamed("a"), Reason: decide.OwnersAbsent, Result: "Done", GracePeriodSeconds: record.GracePeriodOf(action)}
		if e.Action, e.Detail = record.ActionOf(action); !strings.Contains(e.String(), want) {
			t.Errorf("%q has no %q", e, want)
		}
	}
}
