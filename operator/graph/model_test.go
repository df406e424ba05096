package graph_test

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// naiveGraph is a simple model of the graph: the last state of each object, and the UIDs that are
// gone.
type naiveGraph struct {
	seen map[types.UID]graph.Object
	gone map[types.UID]graph.Object
}

func (m *naiveGraph) apply(e graph.Event) {
	switch e := e.(type) {
	case graph.Seen:
		m.seen[e.Object.UID] = e.Object
		delete(m.gone, e.Object.UID)
	case graph.Deleted:
		o, ok := m.seen[e.Object.UID]
		if !ok {
			o = e.Object
		}
		m.gone[e.Object.UID] = o
		delete(m.seen, e.Object.UID)
	case graph.TypeGone:
		for uid, o := range m.seen {
			if o.Kind.GroupKind() == e.Kind {
				delete(m.seen, uid)
			}
		}
	case graph.Relisted:
		for uid, o := range m.seen {
			if _, listed := e.Listed[graph.IDOf(uid)]; !listed && o.Kind.GroupKind() == e.Kind {
				delete(m.seen, uid)
			}
		}
	}
	for uid := range m.gone {
		if len(m.dependents(uid)) == 0 {
			delete(m.gone, uid) // it is no longer referenced
		}
	}
}

func (m *naiveGraph) dependents(uid types.UID) (found []types.UID) {
	for _, o := range m.seen {
		for _, ref := range o.Owners {
			if ref.UID == uid {
				found = append(found, o.UID)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func (m *naiveGraph) has(o graph.Object, ref metav1.OwnerReference) graph.OwnerState {
	owner, seen := m.seen[ref.UID]
	if seen && owner.Terminating && owner.Orphan {
		return graph.Orphaning
	}
	if !seen {
		if owner, seen = m.gone[ref.UID]; !seen {
			return graph.Unseen
		}
	}
	_, gone := m.gone[ref.UID]
	gv, _ := schema.ParseGroupVersion(ref.APIVersion)
	claimed := owner.Kind.Group == gv.Group && owner.Kind.Kind == ref.Kind && owner.Name == ref.Name &&
		(owner.Namespace == "" || owner.Namespace == o.Namespace)
	switch {
	case !claimed && gone:
		return graph.Unseen
	case !claimed:
		return graph.Elsewhere
	case gone:
		return graph.Gone
	case owner.Terminating && owner.Foreground:
		return graph.Foreground
	default:
		return graph.Present
	}
}

// G-16, G-17, G-19, G-21: after any events, the graph has the same knowledge as the model, and
// returns all objects whose knowledge has changed.
func TestG17_G19_G21_GraphEqualsTheModel(t *testing.T) {
	for seed := range int64(200) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			random := rand.New(rand.NewSource(seed))
			g, m := graph.New(), &naiveGraph{seen: map[types.UID]graph.Object{}, gone: map[types.UID]graph.Object{}}
			before := map[types.UID][]graph.OwnerState{}
			for step := range 120 {
				e := randomEvent(random, step)
				woken := g.Apply(e, nil)
				m.apply(e)
				if err := g.Check(); err != nil {
					t.Fatalf("step %d, %T: %v", step, e, err)
				}
				after := compare(t, g, m)
				for uid, known := range after {
					if !cmp.Equal(known, before[uid]) && needsWorkNaive(m.seen[uid], known) && !slices.Contains(woken, graph.IDOf(uid)) {
						t.Fatalf("step %d, %+v: %s has %v instead of %v, but was not returned", step, e, uid, known, before[uid])
					}
				}
				before = after
			}
		})
	}
}

// needsWorkNaive reports whether an object may need work because of its owners.
func needsWorkNaive(o graph.Object, known []graph.OwnerState) bool {
	for _, k := range known {
		if k == graph.Orphaning || !o.Terminating && k != graph.Present {
			return true
		}
	}
	return false
}

func compare(t *testing.T, g *graph.Graph, m *naiveGraph) map[types.UID][]graph.OwnerState {
	t.Helper()
	knowledge := map[types.UID][]graph.OwnerState{}
	for _, uid := range uids {
		view, ok := g.Lookup(graph.IDOf(uid))
		o, seen := m.seen[uid]
		if ok != seen {
			t.Fatalf("%s is seen: %t, want %t", uid, ok, seen)
		}
		if named := len(m.dependents(uid)) != 0; g.Has(uid) != (seen || named) {
			t.Fatalf("%s is in the graph: %t", uid, g.Has(uid))
		}
		if !seen {
			continue
		}
		if diff := cmp.Diff(o, view.Object); diff != "" {
			t.Fatal(diff)
		}
		if want := len(m.dependents(uid)); view.Dependents != want {
			t.Fatalf("%s has %d dependents, want %d", uid, view.Dependents, want)
		}
		var want, got []graph.OwnerState
		for i, ref := range o.Owners {
			want = append(want, m.has(o, ref))
			got = append(got, view.Claims[i].State)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s: %s", uid, diff)
		}
		knowledge[uid] = got
	}
	return knowledge
}

var (
	uids = []types.UID{
		"5f1c2f7e-1f43-4a43-8d8e-0e1b6c9a0001", "5f1c2f7e-1f43-4a43-8d8e-0e1b6c9a0002", "5f1c2f7e-1f43-4a43-8d8e-0e1b6c9a0003",
		"5f1c2f7e-1f43-4a43-8d8e-0e1b6c9a0004", "no-uuid", "5f1c2f7e-1f43-4a43-8d8e-0e1b6c9a0006",
	}
	kinds      = []schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}, {Group: "example.com", Version: "v1", Kind: "Thing"}}
	namespaces = []string{"", "a", "b"}
)

// randomEvent makes events as a cluster would: a UID is one object, with one
// kind, name and namespace.
func randomEvent(random *rand.Rand, step int) graph.Event {
	n := random.Intn(len(uids))
	o := graph.Object{
		UID: uids[n], Kind: kinds[n%2], Namespace: namespaces[n%3], Name: fmt.Sprintf("object-%d", n),
		ResourceVersion: fmt.Sprint(step + 1),
		Terminating:     random.Intn(3) == 0, Foreground: random.Intn(2) == 0, Orphan: random.Intn(4) == 0, OtherFinalizers: random.Intn(4) == 0,
	}
	for range random.Intn(3) {
		o.Owners = append(o.Owners, randomReference(random))
	}
	switch random.Intn(10) {
	case 0, 1:
		return graph.Deleted{Object: o, At: time.Unix(int64(step), 0)}
	case 2:
		if random.Intn(2) == 0 {
			return graph.TypeGone{Kind: o.Kind.GroupKind()}
		}
		return graph.Relisted{Kind: o.Kind.GroupKind(), ResourceVersion: o.ResourceVersion, Listed: map[graph.ID]struct{}{graph.IDOf(o.UID): {}}}
	default:
		return graph.Seen{Object: o}
	}
}

// randomReference names an owner rightly most of the time.
func randomReference(random *rand.Rand) metav1.OwnerReference {
	n := random.Intn(len(uids))
	kind, name := kinds[n%2], fmt.Sprintf("object-%d", n)
	if random.Intn(5) == 0 {
		kind = kinds[random.Intn(2)]
	}
	if random.Intn(5) == 0 {
		name = "wrong"
	}
	apiVersion, k := kind.ToAPIVersionAndKind()
	ref := metav1.OwnerReference{APIVersion: apiVersion, Kind: k, Name: name, UID: uids[n]}
	if random.Intn(2) == 0 {
		ref.BlockOwnerDeletion = ptr.To(random.Intn(2) == 0)
	}
	if random.Intn(4) == 0 {
		ref.Controller = ptr.To(true)
	}
	return ref
}
