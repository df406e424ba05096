package graph_test

import (
	"runtime"
	"testing"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// 3.10: the built-in collector's graph takes 391 bytes for an object that
// nobody owns and 456 for one that is owned, its informers' copies aside. Ours
// has no copies beside it. The limits leave room for other versions of Go.
func Test3_10_AnObjectTakesFewBytes(t *testing.T) {
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

// heap is what is alive on it.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what the first found to be finalizable
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
