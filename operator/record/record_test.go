package record_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
)

func named(name string) record.Object {
	return record.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: name, UID: types.UID(name)}
}

func owner(name, standing string) record.Owner {
	return record.Owner{Object: named(name), Standing: standing, Because: "its deletion was watched"}
}

// deleted is the entry of an object that went with its owners.
func deleted(name string, owners ...string) record.Entry {
	e := record.Entry{Object: named(name), Reason: decide.OwnersAbsent, Action: record.Delete, How: "Background", Result: "Done"}
	for _, o := range owners {
		e.Owners = append(e.Owners, owner(o, "Absent"))
	}
	return e
}

// stuck is the entry of an object that nothing is done about.
func stuck(name string, reason decide.Reason) record.Entry {
	return record.Entry{Object: named(name), Reason: reason, Action: record.None, Owners: []record.Owner{owner("o", "Unknown")}}
}

func names(entries []record.Entry) []string {
	var all []string
	for _, e := range entries {
		all = append(all, e.Object.Name)
	}
	return all
}

func TestANewEntryTakesTheOldestsPlace(t *testing.T) {
	s := record.NewStore(record.Bounds{Entries: 3})
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

func TestEntriesOfOneObject(t *testing.T) {
	s := record.NewStore(record.Bounds{Entries: 8})
	first, second := stuck("a", decide.OwnersUnreadable), deleted("a")
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
		t.Errorf("entries of nobody: %v", got)
	}
}

// Being stuck is one decision, not one for each look; until something about it
// is another, or something is done.
func TestARepeatedDecisionIsKeptOnce(t *testing.T) {
	change := func(change func(*record.Entry)) record.Entry {
		e := stuck("a", decide.OwnersUnreadable)
		change(&e)
		return e
	}
	failed := deleted("a")
	failed.Result, failed.Error = "Failed", "a webhook says no"
	dry := deleted("a", "o")
	dry.Result = "DryRun"
	dryOtherwise := dry
	dryOtherwise.How = "Orphan"
	s := record.NewStore(record.Bounds{Entries: 32})
	for _, c := range []struct {
		name  string
		entry record.Entry
		want  bool
	}{
		{"the first look", stuck("a", decide.OwnersUnreadable), true},
		{"the same again", stuck("a", decide.OwnersUnreadable), false},
		{"the same, later", change(func(e *record.Entry) { e.Time, e.Duration = time.Unix(9, 0), time.Second }), false},
		{"the same, of a newer object", change(func(e *record.Entry) { e.Object.ResourceVersion = "9" }), false},
		{"another object", stuck("b", decide.OwnersUnreadable), true},
		{"another reason", stuck("a", decide.OwnersUnresolvable), true},
		{"the first reason again", stuck("a", decide.OwnersUnreadable), true},
		{"an owner stands otherwise", change(func(e *record.Entry) { e.Owners[0].Standing = "Present" }), true},
		{"an owner more", change(func(e *record.Entry) { e.Owners = append(e.Owners, owner("p", "Present")) }), true},
		{"another cause", change(func(e *record.Entry) { e.Because = "forbidden" }), true},
		{"a write that failed", failed, true},
		{"and failed again", failed, true},
		{"what a dry run would do", dry, true},
		{"and would do again", dry, false},
		{"what it would do otherwise", dryOtherwise, true},
	} {
		kept, isNew := s.Add(c.entry)
		if isNew != c.want {
			t.Errorf("%s: new is %t", c.name, isNew)
		}
		if kept.Object.Name != c.entry.Object.Name || kept.Reason != c.entry.Reason {
			t.Errorf("%s: answered with %s", c.name, kept)
		}
	}
}

// What was overwritten is forgotten: it is neither repeated nor in a chain.
func TestAnOverwrittenEntryIsForgotten(t *testing.T) {
	s := record.NewStore(record.Bounds{Entries: 2})
	s.Add(stuck("a", decide.OwnersUnreadable))
	s.Add(deleted("b"))
	s.Add(deleted("c")) // in place of a
	if _, isNew := s.Add(stuck("a", decide.OwnersUnreadable)); !isNew {
		t.Error("a repeats an entry that is not kept any more")
	}
	s.Add(deleted("d"))
	got, _ := s.Add(deleted("child", "b"))
	if diff := cmp.Diff([]record.Link{{Owner: owner("b", "Absent")}}, got.Chain); diff != "" {
		t.Error(diff)
	}
}

// link is a step of a chain whose owner we deleted, last one whose we did not.
func link(name string) record.Link {
	return record.Link{Owner: owner(name, "Absent"), Deleted: "OwnersAbsent"}
}

func last(name string) record.Link { return record.Link{Owner: owner(name, "Absent")} }

// Defect 3.24: an object's end is explained by its owner's, and so on up to
// what a client did.
func TestAChainLeadsThroughOurOwnDeletes(t *testing.T) {
	standing := deleted("child", "first", "second")
	standing.Owners[0].Standing = "Present"
	for name, c := range map[string]struct {
		before []record.Entry
		entry  record.Entry
		want   []record.Link
	}{
		"an owner that somebody else deleted": {nil, deleted("child", "a"), []record.Link{last("a")}},
		"an owner that we deleted": {[]record.Entry{deleted("a", "b")}, deleted("child", "a"),
			[]record.Link{link("a"), last("b")}},
		"three generations": {[]record.Entry{deleted("b", "c"), deleted("a", "b")}, deleted("child", "a"),
			[]record.Link{link("a"), link("b"), last("c")}},
		"an owner that was looked at again, after its delete": {
			[]record.Entry{deleted("a", "b"), stuck("a", decide.DependentsRemain)}, deleted("child", "a"),
			[]record.Link{link("a"), last("b")}},
		"an owner that is only stuck":      {[]record.Entry{stuck("a", decide.DependentsRemain)}, deleted("child", "a"), []record.Link{last("a")}},
		"the owner that stands is not why": {nil, standing, []record.Link{last("second")}},
		"no owner is lost":                 {nil, deleted("child"), nil},
		"an object that goes last":         {nil, record.Entry{Object: named("owner"), Action: record.RemoveFinalizer, Owners: []record.Owner{owner("a", "Absent")}}, nil},
		"an unblocked owner":               {nil, record.Entry{Object: named("owner"), Action: record.Unblock, Owners: []record.Owner{owner("a", "Absent")}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := record.NewStore(record.Bounds{Entries: 8})
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
func TestAChainDoesNotLeadThroughADeleteThatDidNotHappen(t *testing.T) {
	for _, result := range []string{"Failed", "Changed", "DryRun"} {
		t.Run(result, func(t *testing.T) {
			s := record.NewStore(record.Bounds{Entries: 8})
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
func TestAChainEndsOnACycle(t *testing.T) {
	s := record.NewStore(record.Bounds{Entries: 8})
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

func TestAnEntryReadsAsASentence(t *testing.T) {
	with := func(action record.Action, how string, reason decide.Reason, chain ...record.Link) record.Entry {
		return record.Entry{Object: named("child"), Action: action, How: how, Reason: reason, Chain: chain}
	}
	cluster := with(record.None, "", decide.OwnersUnreadable)
	cluster.Object.Namespace, cluster.Object.Kind = "", "Node"
	for want, e := range map[string]record.Entry{
		"ConfigMap ns/child: deleted (Background), since ConfigMap ns/a is absent (its deletion was watched)": with(record.Delete, "Background", decide.OwnersAbsent, last("a")),
		"ConfigMap ns/child: deleted (Foreground), since ConfigMap ns/a is waiting":                           with(record.Delete, "Foreground", decide.OwnersWaiting, record.Link{Owner: record.Owner{Object: named("a"), Standing: "Waiting"}}),
		"ConfigMap ns/child: reference to ConfigMap a dropped, OwnerRemains":                                  with(record.DropReferences, "ConfigMap a", decide.OwnerRemains),
		"ConfigMap ns/child: finalizer orphan removed, DependentsReleased":                                    with(record.RemoveFinalizer, "orphan", decide.DependentsReleased),
		"ConfigMap ns/child: owner of ConfigMap ns/d unblocked, OwnershipCycle":                               with(record.Unblock, "ConfigMap ns/d", decide.OwnershipCycle),
		"Node child: left as it is, OwnerUnreadable":                                                          cluster,
	} {
		if diff := cmp.Diff(want, e.String()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestAnActionHasAWord(t *testing.T) {
	object := graph.Object{UID: "u", Kind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Namespace: "ns", Name: "web"}
	refs := []metav1.OwnerReference{{Kind: "ConfigMap", Name: "a"}, {Kind: "Node", Name: "n"}}
	for name, c := range map[string]struct {
		action decide.Action
		word   record.Action
		how    string
	}{
		"none":       {nil, record.None, ""},
		"delete":     {decide.Delete{Object: object, Propagation: metav1.DeletePropagationOrphan}, record.Delete, "Orphan"},
		"references": {decide.DropReferences{Object: object, References: refs}, record.DropReferences, "ConfigMap a, Node n"},
		"finalizer":  {decide.RemoveFinalizer{Object: object, Finalizer: "orphan"}, record.RemoveFinalizer, "orphan"},
		"wait":       {decide.Remember{Object: object}, record.Remember, "what becomes of its dependents is still to be decided"},
		"unblock":    {decide.Unblock{Object: object}, record.Unblock, "Deployment ns/web"},
	} {
		t.Run(name, func(t *testing.T) {
			word, how := record.ActionOf(c.action)
			if word != c.word || how != c.how {
				t.Errorf("%s %q, want %s %q", word, how, c.word, c.how)
			}
		})
	}
}

func TestOwnersAreNamedWithHowTheyStand(t *testing.T) {
	facts := decide.Facts{
		Object: graph.Object{Namespace: "ns"},
		Owners: []decide.Owner{
			{Reference: metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "a"}, Standing: decide.Absent, Reason: "its deletion was watched"},
			{Reference: metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "d", UID: "d"}, Standing: decide.Waiting},
		},
	}
	want := []record.Owner{
		owner("a", "Absent"),
		{Object: record.Object{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "ns", Name: "d", UID: "d"}, Standing: "Waiting"},
	}
	if diff := cmp.Diff(want, record.OwnersOf(facts)); diff != "" {
		t.Error(diff)
	}
}

func TestAnEntrySurvivesJSON(t *testing.T) {
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

// Many writers and readers at once, for the race detector; and the indexes
// still lead to the right entries after going round many times.
func TestAStoreMayBeUsedConcurrently(t *testing.T) {
	s := record.NewStore(record.Bounds{Entries: 16})
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 200 {
				name := fmt.Sprintf("%d-%d", w, i%7)
				s.Add(deleted(name, fmt.Sprintf("%d-%d", w, (i+1)%7)))
				s.Add(stuck(name, decide.OwnersUnreadable))
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

func Test3_29_AnEntryNamesWhatAnObjectWaitsFor(t *testing.T) {
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	facts := decide.Facts{Blockers: []graph.Blocker{
		{Object: graph.Coordinates{UID: "1", Kind: pod, Namespace: "ns", Name: "idle"}},
		{Object: graph.Coordinates{UID: "2", Kind: pod, Namespace: "ns", Name: "held"}, Terminating: true, Held: true},
	}}
	e := record.Entry{
		Object: named("owner"), Action: record.None, Reason: decide.DependentsRemain,
		WaitsFor: record.BlockersOf(facts), Blocking: 12,
	}
	want := e.Object.String() + ": left as it is, DependentsRemain, waits for Pod ns/idle (not being deleted yet)" +
		", waits for Pod ns/held (being deleted, and held by its finalizers) and 10 more"
	if diff := cmp.Diff(want, e.String()); diff != "" {
		t.Error(diff)
	}
	s := record.NewStore(record.Bounds{Entries: 8})
	s.Add(e)
	if _, isNew := s.Add(e); isNew {
		t.Error("the same wait is told twice")
	}
	e.WaitsFor = e.WaitsFor[:1]
	if _, isNew := s.Add(e); !isNew {
		t.Error("another wait is not told")
	}
}

// A module that has given up is not asked again at every look.
func TestWhatIsKnownWithoutAskingAgainIsNoNewDecision(t *testing.T) {
	s := record.NewStore(record.Bounds{Entries: 8})
	asked := record.Entry{Object: named("a"), Action: record.None, How: "example.com/a", Reason: "FinalizerFailed", Because: "it is not empty",
		Asked: []record.Asked{{Policy: "Finalizer ns/a", Decision: "Fail", Reason: "it is not empty"}}}
	s.Add(asked)
	known := asked
	known.Asked = nil
	if _, isNew := s.Add(known); isNew {
		t.Error("it is told again that it has failed, although nobody was asked")
	}
	known.Because = "it is full"
	if _, isNew := s.Add(known); !isNew {
		t.Error("another failure is not told")
	}
}

func TestTheStoreTellsHowFarBackItHasForgotten(t *testing.T) {
	s, at := record.NewStore(record.Bounds{Entries: 2}), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 4 {
		if forgotten := s.Forgotten(); i < 3 && !forgotten.IsZero() {
			t.Errorf("after %d entries something of %s is forgotten", i, forgotten)
		}
		s.Add(record.Entry{Time: at.Add(time.Duration(i) * time.Minute), Object: record.Object{UID: types.UID(strconv.Itoa(i))}, Action: record.Delete})
	}
	if want := at.Add(time.Minute); !s.Forgotten().Equal(want) {
		t.Errorf("forgotten up to %s, not %s", s.Forgotten(), want)
	}
}
