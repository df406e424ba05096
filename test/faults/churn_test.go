package faults

import (
	"fmt"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const churned = 30 // types that come and go

// 3.9: what a type has cost goes with it. This test runs alone, before those
// that run beside each other, so what it counts is the collector's.
func TestG14_3_9_TypesThatComeAndGoLeaveNothingBehind(t *testing.T) {
	w := worldOn(t, sharedStage(t))
	w.churn(2) // what is only made once is made now
	watches := w.proxy.Watching("")
	goroutines, heap := runtime.NumGoroutine(), liveHeap()
	w.churn(churned)
	eventually(t, func() error {
		if n := w.proxy.Watching(""); n > watches {
			return fmt.Errorf("%d watches run, and %d before", n, watches)
		}
		if n := runtime.NumGoroutine(); n > goroutines+churned/3 {
			return fmt.Errorf("%d goroutines run, and %d before", n, goroutines)
		}
		if n := liveHeap(); n > heap+10<<20 {
			return fmt.Errorf("%d MB are in use, and %d before", n>>20, heap>>20)
		}
		return nil
	})
	t.Logf("watches %d to %d, goroutines %d to %d, heap %d kB to %d kB", watches, w.proxy.Watching(""),
		goroutines, runtime.NumGoroutine(), heap>>10, liveHeap()>>10)
}

// churn defines types, has objects of them collected, and takes them away
// while they have others.
func (w *world) churn(n int) {
	w.Helper()
	var kinds []*kind
	var left []*unstructured.Unstructured
	for range n {
		r := newType()
		w.create(r)
		kinds = append(kinds, kindOf(r))
	}
	for _, k := range kinds {
		w.served(k)
		w.witness.knows(k)
		owner := w.make(thing{name: "owner", kind: k})
		left = append(left, w.make(thing{name: "left", kind: k, owners: owns(owner)}))
		w.make(thing{name: "idle", kind: k})
		w.delete(owner, background)
	}
	w.goes(left...)
	for _, k := range kinds {
		w.remove(k)
	}
	for _, k := range kinds {
		w.removed(k)
	}
	for _, k := range kinds {
		w.eventuallyUnserved(k)
		eventually(w, func() error {
			if n := w.proxy.Watching(k.resource.Resource); n != 0 {
				return fmt.Errorf("%s is watched %d times", k.kind, n)
			}
			return nil
		})
	}
	w.defined = nil
}

// liveHeap returns how much is left after what is not needed is let go.
func liveHeap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
