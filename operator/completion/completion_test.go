package completion_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/completion"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// story is a graph with events, which a Tracker observes.
type story struct {
	*testing.T
	graph   *graph.Graph
	tracker completion.Tracker
	objects map[string]graph.Object
	now     time.Time
}

func newStory(t *testing.T) *story {
	t.Helper()
	return &story{T: t, graph: graph.New(), objects: map[string]graph.Object{}, now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func (s *story) apply(e graph.Event) {
	s.now = s.now.Add(time.Second)
	s.tracker.Observe(e, s.graph, s.now)
	s.graph.Apply(e, nil)
}

// see shows an object in a changed state.
func (s *story) see(name string, change func(*graph.Object)) {
	o, known := s.objects[name]
	if !known {
		o = graph.Object{UID: types.UID(name), Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespace: "shop", Name: name}
	}
	o.ResourceVersion = fmt.Sprint(s.now.Unix())
	if change != nil {
		change(&o)
	}
	s.objects[name] = o
	s.apply(graph.Seen{Object: o})
}

// create shows an object with owners.
func (s *story) create(name string, owners ...string) { s.see(name, ownedBy(owners...)) }

func ownedBy(owners ...string) func(*graph.Object) {
	return func(o *graph.Object) {
		o.Owners = nil
		for _, owner := range owners {
			o.Owners = append(o.Owners, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner, UID: types.UID(owner)})
		}
	}
}

func (s *story) remove(name string) { s.apply(graph.Deleted{Object: s.objects[name]}) }

// expect checks which cascades have completed since the last call, as "root deleted/kept".
func (s *story) expect(want ...string) {
	s.Helper()
	completed, _ := s.tracker.Check(s.graph, s.now)
	var got []string
	for _, c := range completed {
		got = append(got, fmt.Sprintf("%s %d/%d", c.Root.Name, c.Deleted, c.Kept))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("completed (-want +got):\n%s", diff)
	}
}

func (s *story) expectInProgress(want ...string) {
	s.Helper()
	var got []string
	for _, c := range s.tracker.All() {
		got = append(got, fmt.Sprintf("%s %d/%d %v", c.Root.Name, c.Deleted, c.Kept, c.Owners))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("in progress (-want +got):\n%s", diff)
	}
}

func TestCascade_InTheBackground(t *testing.T) {
	s := newStory(t)
	s.create("root")
	s.create("a", "root")
	s.create("b", "root")
	s.create("leaf", "a")
	s.create("other")
	s.remove("root")
	s.expect()
	s.remove("b")
	s.remove("a")
	s.expectInProgress("root 2/0 [a root]")
	s.remove("other") // has no dependents, and begins nothing
	s.expect()
	s.expectInProgress("root 2/0 [a]")
	s.remove("leaf")
	s.expect("root 3/0")
	s.expectInProgress()
}

func TestCascade_InTheForeground(t *testing.T) {
	s := newStory(t)
	s.create("root")
	s.create("a", "root")
	s.create("leaf", "a")
	terminate := func(o *graph.Object) { o.Terminating, o.Foreground = true, true }
	s.see("root", terminate)
	s.see("a", terminate)
	s.expectInProgress("root 0/0 [a root]")
	s.remove("leaf")
	s.remove("a")
	s.expect()
	s.remove("root")
	s.expect("root 2/0")
}

func TestCascade_ThatOrphansCountsWhatIsKept(t *testing.T) {
	s := newStory(t)
	s.create("root")
	s.create("a", "root")
	s.create("b", "root", "other")
	s.see("root", func(o *graph.Object) { o.Terminating, o.Orphan = true, true })
	s.see("a", ownedBy())
	s.see("b", ownedBy("other"))
	s.expect()
	s.remove("root")
	s.expect("root 0/2")
}

func TestCascade_WithinAnotherBelongsToThatOne(t *testing.T) {
	s := newStory(t)
	s.create("root")
	s.create("a", "root")
	s.create("leaf", "a")
	s.remove("root")
	s.see("a", func(o *graph.Object) { o.Terminating, o.OtherFinalizers = true, true })
	s.expectInProgress("root 0/0 [a root]")
	s.remove("leaf")
	s.expect()
	s.remove("a")
	s.expect("root 2/0")
}

func TestCascade_OfAnObjectWithASecondOwnerCompletesWhenItIsReleased(t *testing.T) {
	s := newStory(t)
	s.create("root")
	s.create("second")
	s.create("a", "root", "second")
	s.remove("root")
	s.expect()
	s.see("a", ownedBy("second"))
	s.expect("root 0/1")
	s.remove("second")
	s.remove("a")
	s.expect("second 1/0")
}

// Each type has its own watch: that the owner is gone may be seen before its dependents are.
func TestCascade_DependentsMayBeSeenAfterTheRootIsGone(t *testing.T) {
	s := newStory(t)
	s.create("root")
	s.remove("root")
	s.create("a", "root")
	s.create("leaf", "a")
	s.create("b", "root")
	s.graph.Apply(graph.Absent{Claim: graph.Coordinates{Kind: s.objects["root"].Kind, Namespace: "shop", Name: "root", UID: "root"}, At: s.now}, nil)
	s.remove("a")
	s.expect()
	s.remove("b")
	s.expect()
	s.remove("leaf")
	s.expect("root 3/0")
}

// An owner that could not be read is not absent.
func TestCascade_ALeafOfAnUnknownOwnerBeginsNone(t *testing.T) {
	s := newStory(t)
	s.create("a", "unknown")
	s.create("b", "unknown")
	s.remove("a")
	s.expect()
	s.expectInProgress()
}

func TestCascade_ASecondEventOfADeletionIsNotCounted(t *testing.T) {
	s := newStory(t)
	s.create("root")
	s.create("a", "root")
	s.create("b", "root")
	s.remove("root")
	s.remove("a")
	s.remove("a")
	s.remove("b")
	s.expect("root 2/0")
	s.remove("b")
	s.remove("root")
	s.expect()
}

func TestCascade_WithoutProgressIsStalledOnce(t *testing.T) {
	s := newStory(t)
	s.create("root")
	s.create("a", "root")
	s.remove("root")
	for i, want := range []int{0, 1, 0} {
		if _, stalled := s.tracker.Check(s.graph, s.now); len(stalled) != want {
			t.Errorf("check %d: %d stalled", i, len(stalled))
		}
		s.now = s.now.Add(completion.StalledAfter)
	}
	s.remove("a")
	completed, _ := s.tracker.Check(s.graph, s.now)
	if len(completed) != 1 || !completed[0].Stalled {
		t.Errorf("completed %+v", completed)
	}
}

func TestRestore_ContinuesInAnotherProcess(t *testing.T) {
	s := newStory(t)
	s.create("root")
	s.create("a", "root")
	s.create("b", "root")
	s.remove("root")
	s.remove("a")
	saved := s.tracker.All()
	next := newStory(t)
	next.create("b", "root") // all that a list shows
	next.objects["a"] = s.objects["a"]
	next.tracker.Restore(saved)
	next.tracker.Restore(saved)
	next.expect()
	next.remove("b")
	next.expect("root 2/0")
	next.tracker.Restore(saved)
	next.expect("root 1/0") // the caller must not restore what has completed
}

// One namespace does not use up what is tracked for all.
func TestTracker_IsBounded_InEachNamespace(t *testing.T) {
	s := newStory(t)
	begin := func(namespace string, i, dependents int) {
		root := fmt.Sprint(namespace, "-root-", i)
		s.see(root, func(o *graph.Object) { o.Namespace = namespace })
		for j := range dependents {
			owner := fmt.Sprint(root, "-", j)
			s.create(owner, root)
			s.create(owner+"-leaf", owner)
		}
		s.create(root+"-leaf", root)
		s.remove(root)
		for j := range dependents {
			s.remove(fmt.Sprint(root, "-", j))
		}
	}
	for i := range completion.MaxCascadesOfNamespace + 5 {
		begin("busy", i, 0)
	}
	begin("other", 0, 1)
	if n := s.tracker.Len(); n != completion.MaxCascadesOfNamespace+1 || s.tracker.Untracked != 5 {
		t.Errorf("%d tracked, %d not", n, s.tracker.Untracked)
	}
	s.remove("other-root-0-leaf")
	s.remove("other-root-0-0-leaf")
	s.expect("other-root-0 3/0")
}

// A cascade that is too large to be followed is forgotten, and never reported as completed.
func TestTracker_ForgetsACascadeWithTooManyOwners(t *testing.T) {
	s := newStory(t)
	s.create("small")
	s.create("leaf", "small")
	s.remove("small")
	s.create("root")
	for i := range completion.MaxOwnersOfNamespace + 1 {
		s.create(fmt.Sprint("owner-", i), "root")
		s.create(fmt.Sprint("leaf-", i), fmt.Sprint("owner-", i))
	}
	s.remove("root")
	for i := range completion.MaxOwnersOfNamespace + 1 {
		s.remove(fmt.Sprint("owner-", i))
	}
	s.expect()
	if s.tracker.Untracked == 0 {
		t.Error("it is tracked")
	}
	s.expectInProgress("small 0/0 [small]")
	s.remove("leaf")
	s.expect("small 1/0")
}

// Random forests are deleted in a random order, as a collector does: each cascade completes exactly once, and counts each
// object that was deleted in it.
func TestCascade_CompletesExactlyOnce(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // repeatable
		s := newStory(t)
		roots := 1 + random.IntN(3)
		var names, waiting []string
		dependents := map[string][]string{}
		for i := range roots + random.IntN(30) {
			name := fmt.Sprint(i)
			if i < roots {
				s.create(name)
			} else {
				owner := names[random.IntN(len(names))]
				s.create(name, owner)
				dependents[owner] = append(dependents[owner], name)
			}
			names = append(names, name)
		}
		sizes, completed := map[string]int{}, map[string]int{}
		check := func() {
			done, _ := s.tracker.Check(s.graph, s.now)
			for _, c := range done {
				completed[c.Root.Name]++
				sizes[c.Root.Name] += c.Deleted
			}
		}
		for i := range roots {
			waiting = append(waiting, fmt.Sprint(i))
		}
		var size func(name string) int
		size = func(name string) (n int) {
			for _, d := range dependents[name] {
				n += 1 + size(d)
			}
			return n
		}
		for len(waiting) != 0 {
			i := random.IntN(len(waiting))
			name := waiting[i]
			waiting = slices.Delete(waiting, i, i+1)
			if random.IntN(3) == 0 {
				s.see(name, func(o *graph.Object) { o.Terminating, o.OtherFinalizers = true, true })
			}
			s.remove(name)
			waiting = append(waiting, dependents[name]...)
			if random.IntN(2) == 0 {
				check()
			}
		}
		check()
		check()
		for i := range roots {
			root, want := fmt.Sprint(i), 1
			if size(root) == 0 {
				want = 0
			}
			if completed[root] != want || sizes[root] != size(root) {
				t.Fatalf("seed %d: %s completed %d times, want %d, with %d objects, want %d", seed, root, completed[root], want, sizes[root], size(root))
			}
		}
		if all := s.tracker.All(); len(all) != 0 {
			t.Fatalf("seed %d: in progress: %+v", seed, all)
		}
	}
}
