package graph_test

import (
	"runtime"
	"testing"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// 3.10: the graph of the built-in garbage collector takes 391 bytes for an object without
// owners and 456 for one with an owner, not counting the copies of its informers. Gleaner
// has no such copies. The limits leave room for other versions of Go.
func Test3_10_MemoryPerObject(t *testing.T) {
	for name, c := range map[string]struct {
		owned bool
		most  float64 // bytes for each object, its name included
	}{
		"unowned": {false, 250},
		"owned":   {true, 320},
	} {
		t.Run(name, func(t *testing.T) {
			list := objects(c.owned)
			before := heap()
			g := graph.New()
			var woken []graph.ID
			for i := range list {
				woken = g.Apply(graph.Seen{Object: list[i]}, woken[:0])
			}
			each := (float64(heap()) - float64(before)) / many
			runtime.KeepAlive(g)
			runtime.KeepAlive(list)
			if each > c.most {
				t.Errorf("%.0f bytes for each object, want %.0f at most", each, c.most)
			}
		})
	}
}

// heap returns the size of live objects.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // frees objects with finalizers
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
