package graph_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

var configMap = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

func TestScratch(t *testing.T) {
	before := heap()
	g := graph.New()
	began := time.Now()
	for i := range 100 {
		g.Apply(graph.Seen{Object: manyOwners(i, 8000, fmt.Sprint(i))}, nil)
	}
	t.Log("apply each", time.Since(began)/100)
	t.Log("heap MB", (heap()-before)>>20)
	began = time.Now()
	for i := range 100 {
		g.Look(graph.IDOf(types.UID(fmt.Sprint("o", i))))
	}
	t.Log("look each", time.Since(began)/100)
	began = time.Now()
	g.Dump()
	t.Log("dump", time.Since(began))
	began = time.Now()
	for i := range 100 {
		o := manyOwners(i, 8000, fmt.Sprint(i, "b"))
		o.ResourceVersion = "60"
		g.Apply(graph.Seen{Object: o}, nil)
	}
	t.Log("update each", time.Since(began)/100)
	runtime.KeepAlive(g)

	// cycles
	g = graph.New()
	for i := range 100 {
		o := graph.Object{UID: types.UID(fmt.Sprint("o", i)), Kind: configMap, Namespace: "ns", Name: "x", ResourceVersion: "50", Terminating: true, Foreground: true}
		for j := range 8000 {
			o.Owners = append(o.Owners, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprint("n", j), UID: types.UID(fmt.Sprint("o", j%100)), BlockOwnerDeletion: ptr.To(true)})
		}
		g.Apply(graph.Seen{Object: o}, nil)
	}
	began = time.Now()
	g.Cycle(graph.IDOf("o5"))
	t.Log("cycle", time.Since(began))
	began = time.Now()
	g.Look(graph.IDOf("o5"))
	t.Log("look", time.Since(began))
	began = time.Now()
	g.ByKind(graph.IDOf("o5"))
	t.Log("bykind", time.Since(began))
}

func manyOwners(i, n int, prefix string) graph.Object {
	o := graph.Object{UID: types.UID(fmt.Sprint("o", i)), Kind: configMap, Namespace: "ns", Name: fmt.Sprint("object-", i), ResourceVersion: "50"}
	for j := range n {
		o.Owners = append(o.Owners, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprint("never-", prefix, "-", j), UID: types.UID(fmt.Sprintf("%08d-%04d-4000-8000-00000000%04d", i, j, len(prefix)))})
	}
	return o
}
