package graph_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// objectWithOwners is an object with so many owners, by UIDs that each occur so often in a row.
func objectWithOwners(uid string, owners, each int) graph.Object {
	o := graph.Object{
		UID: types.UID(uid), Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespace: "ns", Name: uid, ResourceVersion: "50",
	}
	for i := range owners {
		o.Owners = append(o.Owners, metav1.OwnerReference{
			APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprint("never-", i), UID: types.UID(fmt.Sprint("owner-", i/each)), BlockOwnerDeletion: ptr.To(true),
		})
	}
	return o
}

func TestApply_KeepsAtMostMaxOwners(t *testing.T) {
	g := graph.New()
	for _, owners := range []int{graph.MaxOwners, graph.MaxOwners + 1, 5 * graph.MaxOwners, 3} {
		o := objectWithOwners("a", owners, 1)
		o.ResourceVersion = ""
		g.Apply(graph.Seen{Object: o}, nil)
		view, _ := g.Lookup(graph.IDOf("a"))
		kept := min(owners, graph.MaxOwners)
		if view.Object.Truncated != (owners > kept) || len(view.Object.Owners) != kept || len(view.Claims) != kept {
			t.Errorf("of %d owners %d are kept, truncated: %t", owners, len(view.Object.Owners), view.Object.Truncated)
		}
		if stats := g.Stats(); stats.Named != kept || stats.Edges != kept {
			t.Errorf("of %d owners there are %+v", owners, stats)
		}
	}
	if err := g.Check(); err != nil {
		t.Error(err)
	}
}

// Whoever names an owner a thousand times over is one dependent of it, is woken once,
// and is found to be so without going through all its references each time.
func TestApply_RepeatedReferenceCountsOnce(t *testing.T) {
	g := graph.New()
	owner := graph.Object{UID: "owner-7", Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespace: "ns", Name: "never-70", ResourceVersion: "40"}
	g.Apply(graph.Seen{Object: owner}, nil)
	for i := range 3 {
		g.Apply(graph.Seen{Object: objectWithOwners(fmt.Sprint("d", i), 100, 10)}, nil)
	}
	if view, _ := g.Lookup(graph.IDOf("owner-7")); view.Dependents != 3 || view.Blocking != 30 {
		t.Errorf("%d dependents, %d blocking references", view.Dependents, view.Blocking)
	}
	if woken := g.Apply(graph.Deleted{Object: owner}, nil); len(woken) != 3 {
		t.Errorf("%d were woken: %v", len(woken), woken)
	}
}

func TestDump_LimitsOwners(t *testing.T) {
	g := graph.New()
	g.Apply(graph.Seen{Object: objectWithOwners("a", 250, 1)}, nil)
	for name, d := range map[string]graph.Dump{"whole": g.Dump(), "component": g.Dump("a")} {
		if len(d.Nodes) != 101 || len(d.Edges) != 100 || d.Nodes[0].OwnersOmitted != 150 {
			t.Errorf("%s: %d nodes, %d edges, of the first %d owners are omitted", name, len(d.Nodes), len(d.Edges), d.Nodes[0].OwnersOmitted)
		}
	}
}

// To look for a cycle among objects with a hundred thousand references takes the lock
// that everything waits for.
func TestCycle_LimitsReferencesFollowed(t *testing.T) {
	for objects, want := range map[int]bool{4: true, 20: false} {
		g := graph.New()
		for i := range objects {
			o := objectWithOwners(fmt.Sprint("owner-", i), 8000, 8000/objects)
			o.Terminating, o.Foreground = true, true
			g.Apply(graph.Seen{Object: o}, nil)
		}
		if _, found := g.Cycle(graph.IDOf("owner-1")); found != want {
			t.Errorf("of %d objects a cycle is found: %t", objects, found)
		}
	}
}
