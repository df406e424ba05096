package graph_test

import (
	"fmt"
	"runtime"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

const many = 100_000

// objects returns many ConfigMaps of which all but a hundredth are owned.
func objects(owned bool) []graph.Object {
	list := make([]graph.Object, many)
	for i := range list {
		list[i] = graph.Object{
			UID: uuid.NewUUID(), ResourceVersion: fmt.Sprint(1000 + i), Namespace: fmt.Sprintf("namespace-%d", i%50),
			Name: fmt.Sprintf("object-%d", i), Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		}
		if owner := list[i/100*100]; owned && i%100 != 0 {
			list[i].Namespace = owner.Namespace
			list[i].Owners = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
		}
	}
	return list
}

// The bytes are those that stay on the heap for each object, its own name
// included; the UID and the other strings of the event are not kept.
func BenchmarkApply(b *testing.B) {
	for name, owned := range map[string]bool{"unowned": false, "owned": true} {
		b.Run(name, func(b *testing.B) {
			list := objects(owned)
			var before, after runtime.MemStats
			var g *graph.Graph
			for b.Loop() {
				g = graph.New() // frees the previous one
				runtime.GC()
				runtime.ReadMemStats(&before)
				var dirty []graph.ID
				for i := range list {
					dirty = g.Apply(graph.Seen{Object: list[i]}, dirty[:0])
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
			}
			runtime.KeepAlive(g)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/many, "heap-B/object")
		})
	}
}

// An update that changes nothing but the resourceVersion is what most events
// of a cluster are.
func BenchmarkApplyUnrelated(b *testing.B) {
	list := objects(true)
	g := graph.New()
	for i := range list {
		g.Apply(graph.Seen{Object: list[i]}, nil)
	}
	i, rv := 0, 10_000_000
	for b.Loop() {
		o := list[i%many]
		rv++
		o.ResourceVersion = fmt.Sprint(rv)
		g.Apply(graph.Seen{Object: o}, nil)
		i++
	}
}

// The deletion of an owner with many dependents.
func BenchmarkOwnerGone(b *testing.B) {
	owner := graph.Object{UID: uuid.NewUUID(), ResourceVersion: "1", Name: "owner", Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}}
	g := graph.New()
	g.Apply(graph.Seen{Object: owner}, nil)
	for i := range 10_000 {
		g.Apply(graph.Seen{Object: graph.Object{
			UID: types.UID(uuid.NewUUID()), ResourceVersion: "2", Name: fmt.Sprint(i), Kind: owner.Kind,
			Owners: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}},
		}}, nil)
	}
	for b.Loop() {
		g.Apply(graph.Deleted{Object: owner}, nil)
		g.Apply(graph.Seen{Object: owner}, nil)
	}
}
