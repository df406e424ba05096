package faults

import (
	"fmt"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const churnedTypes = 30 // types that are created and removed

// 3.9: the resources used for a type are freed with it. This test runs before the parallel
// tests, so only the collector's own usage counts.
func TestG14_3_9_RemovedTypes_LeakNothing(t *testing.T) {
	w := newEnvOn(t, sharedTestbed(t))
	w.churnTypes(2) // allocates what is allocated once
	watches := w.proxy.Watching("")
	goroutines, heap := runtime.NumGoroutine(), liveHeap()
	w.churnTypes(churnedTypes)
	eventually(t, func() error {
		if n := w.proxy.Watching(""); n > watches {
			return fmt.Errorf("%d watches, was %d", n, watches)
		}
		if n := runtime.NumGoroutine(); n > goroutines+churnedTypes/3 {
			return fmt.Errorf("%d goroutines, was %d", n, goroutines)
		}
		if n := liveHeap(); n > heap+10<<20 {
			return fmt.Errorf("%d MB in use, was %d", n>>20, heap>>20)
		}
		return nil
	})
	t.Logf("watches %d to %d, goroutines %d to %d, heap %d kB to %d kB", watches, w.proxy.Watching(""),
		goroutines, runtime.NumGoroutine(), heap>>10, liveHeap()>>10)
}

// churnTypes defines types, waits until objects of them are collected, and removes the types
// while they have other objects.
func (w *env) churnTypes(n int) {
	w.Helper()
	var kinds []*kind
	var left []*unstructured.Unstructured
	for range n {
		r := newType()
		w.createCRD(r)
		kinds = append(kinds, kindOf(r))
	}
	for _, k := range kinds {
		w.waitForServed(k)
		w.auditor.addKinds(k)
		owner := w.create(objectSpec{name: "owner", kind: k})
		left = append(left, w.create(objectSpec{name: "left", kind: k, owners: ownerRefs(owner)}))
		w.create(objectSpec{name: "idle", kind: k})
		w.delete(owner, background)
	}
	w.waitForDeletion(left...)
	for _, k := range kinds {
		w.deleteCRD(k)
	}
	for _, k := range kinds {
		w.waitForCRDDeletion(k)
	}
	for _, k := range kinds {
		w.waitForUnserved(k)
		eventually(w, func() error {
			if n := w.proxy.Watching(k.resource.Resource); n != 0 {
				return fmt.Errorf("%s has %d watches", k.kind, n)
			}
			return nil
		})
	}
	w.definedTypes = nil
}

// liveHeap returns the size of the heap after garbage collection.
func liveHeap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
