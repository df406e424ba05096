package collector_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// carriesOut is the built-in collector: it orphans or deletes an owner's dependents, and
// removes its finalizer.
func (w *world) carriesOut(owner *object, dependents ...*object) {
	for _, d := range dependents {
		if slices.Contains(owner.Finalizers, metav1.FinalizerOrphanDependents) {
			d.OwnerReferences = nil
			w.api.changed(d)
			continue
		}
		if err := w.api.delete(d, []byte("{}")); err != nil {
			w.t.Fatal(err)
		}
	}
	owner.Finalizers = slices.DeleteFunc(owner.Finalizers, func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	w.api.changed(owner)
}

// Beside the built-in collector, carrying out a decision takes three writes: the decision,
// the second DELETE, and the release. All that is needed for them was shown by the watch and by
// the writes before, so no object is read, and none of them conflicts.
func TestPropagate_InCompanionModeWritesThriceAndReadsNothing(t *testing.T) {
	for _, decision := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		t.Run(string(decision), func(t *testing.T) {
			w := newWorld(t)
			w.companion = true
			w.connect()
			govern(w, w.lines("Deployment.apps propagate")[0], `{"decision": "`+string(decision)+`"}`)
			w.given("Deployment.apps shop/web", "ReplicaSet.apps shop/a owners=(Deployment.apps:web::block)")
			w.settle()
			w.delete(words{plain: []string{"web", "Background"}})
			clear(w.api.counts)
			w.api.reads = 0
			w.out.Reset()
			w.catchUp()
			w.work(slices.Collect(maps.Keys(w.woken))) // saves the decision, and deletes
			web := w.object("web")
			for range 2 { // the watch is behind
				w.store.Sweep()
				w.work(slices.Collect(maps.Keys(w.woken)))
			}
			w.carriesOut(web, w.object("a"))
			w.settle()
			if _, exists := w.api.objects[web.key]; exists {
				t.Error("the owner still exists")
			}
			patches, deletes, gets := w.api.counts[http.MethodPatch], w.api.counts[http.MethodDelete], w.api.counts[http.MethodGet]
			if patches != 2 || deletes != 1 || gets != 0 || w.api.reads != 0 || strings.Contains(w.out.String(), "409") {
				t.Errorf("%d PATCH, %d DELETE, %d GET, %d reads by policies; want 2, 1, 0, 0:\n%s", patches, deletes, gets, w.api.reads, w.out.String())
			}
		})
	}
}

// If the watch never shows what a write has done, the object is read in the end.
func TestPropagate_DoesNotWaitForTheWatchForever(t *testing.T) {
	w := newWorld(t)
	w.companion = true
	w.connect()
	govern(w, w.lines("Deployment.apps propagate")[0], `{"decision": "Foreground"}`)
	w.given("Deployment.apps shop/web", "ReplicaSet.apps shop/a owners=(Deployment.apps:web::block)")
	w.settle()
	w.delete(words{plain: []string{"web", "Background"}})
	w.catchUp()
	w.work(slices.Collect(maps.Keys(w.woken)))
	w.store.Sweep()
	w.work(slices.Collect(maps.Keys(w.woken))) // the graph has what the DELETE has replaced
	if len(w.later) != 1 {
		t.Fatalf("it is not tried again by itself:\n%s", w.out.String())
	}
	clear(w.api.counts)
	run := commands["retry"]
	run(w, words{}, "")
	if gets := w.api.counts[http.MethodGet]; gets != 1 || slices.Contains(w.object("web").Finalizers, "gleaner.dev/hold") {
		t.Errorf("%d reads; want one that leads to the release:\n%s", gets, w.out.String())
	}
}
