package finalizers

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
)

// fakeHandler handles objects by a function, and stores the resourceVersions of what it was given.
type fakeHandler struct {
	versions []string
	handle   func(*unstructured.Unstructured) error // nil: nothing fails
}

func (h *fakeHandler) Handle(ctx context.Context, o *unstructured.Unstructured) (string, error) {
	h.versions = append(h.versions, o.GetResourceVersion())
	if _, limited := ctx.Deadline(); !limited {
		return "", errors.New("the call has no deadline")
	}
	if h.handle == nil {
		return "stored", nil
	}
	return "stored", h.handle(o)
}

// newBuiltInEnv returns a testEnv of a built-in finalizer for ConfigMaps and Roles.
func newBuiltInEnv(t *testing.T, change ...func(*policies.Finalizer)) (*testEnv, *fakeHandler) {
	h := &fakeHandler{}
	builtIn := func(f *policies.Finalizer) { f.BuiltIn, f.Handler, f.Evaluator, f.Attach = true, h, nil, true }
	return newTestEnv(t, append([]func(*policies.Finalizer){builtIn}, change...)...), h
}

func (w *testEnv) wantReleased(o *unstructured.Unstructured) {
	w.Helper()
	if live := w.api.get(o); live != nil {
		w.Fatalf("the object still exists: %v", live.GetFinalizers())
	}
}

// deleting is a change that has the resource of the finalizer deleted.
func deleting(f *policies.Finalizer) { f.Deleting, f.Withdraw = true, true }

func TestBuiltIn_IsRemovedOnceHandled(t *testing.T) {
	for claim, change := range map[string]func(*policies.Finalizer){
		"in force": func(*policies.Finalizer) {}, "after its resource was deleted": deleting, "withdrawn": func(f *policies.Finalizer) { f.Withdraw = true },
	} {
		t.Run(claim, func(t *testing.T) {
			w, h := newBuiltInEnv(t, change)
			o := w.createPending()
			h.handle = func(*unstructured.Unstructured) error { return errors.New("disk full") }
			w.wantDelay(w.reconcile(o), time.Second)
			w.wantFinalizer(o)
			w.wantOutcome(HostError, "disk full")
			if p := w.controller.progress(); len(p.Stuck) != 1 || p.Stuck[0].Reason != "Error" {
				t.Errorf("stuck: %+v", p.Stuck)
			}
			h.handle = nil
			w.advance(time.Second)
			w.reconcile(o)
			w.wantReleased(o)
			w.wantOutcome(Done, "stored")
		})
	}
}

// A store that fails is not called for each change of the object.
func TestBuiltIn_FailuresAreRetriedAtTheirPace(t *testing.T) {
	w, h := newBuiltInEnv(t)
	o := w.createPending()
	h.handle = func(*unstructured.Unstructured) error { return errors.New("disk full") }
	w.reconcile(o)
	w.api.change(o, label("changed"))
	w.wantDelay(w.reconcile(o), time.Second)
	if len(h.versions) != 1 {
		t.Errorf("it was called %d times, want once", len(h.versions))
	}
	w.controller.update(activeFinalizer{Finalizer: w.finalizer(func(f *policies.Finalizer) {
		f.BuiltIn, f.Handler, f.Evaluator, f.Attach, f.Generation = true, h, nil, true, 2
	})})
	w.reconcile(o)
	if len(h.versions) != 2 {
		t.Errorf("it was called %d times after a change of its resource, want twice", len(h.versions))
	}
}

// What was stored is the last state of the object.
func TestBuiltIn_ChangedObjectIsHandledAgain(t *testing.T) {
	w, h := newBuiltInEnv(t)
	o := w.createPending()
	h.handle = func(o *unstructured.Unstructured) error {
		if len(h.versions) == 1 {
			w.api.change(o, label("changed"))
		}
		return nil
	}
	w.wantDelay(w.reconcile(o), restartDelay)
	w.wantFinalizer(o)
	last := w.api.get(o).GetResourceVersion()
	w.reconcile(o)
	w.wantReleased(o)
	if len(h.versions) != 2 || h.versions[1] != last {
		t.Errorf("it was called with %v, want the last one to be %s", h.versions, last)
	}
}

func TestBuiltIn_WithoutAHandlerKeepsObjects(t *testing.T) {
	w, _ := newBuiltInEnv(t, func(f *policies.Finalizer) { f.Handler, f.Attach, f.NotReadyReason = nil, false, "no store" })
	o := w.createPending()
	w.wantDelay(w.reconcile(o), 0)
	w.wantFinalizer(o)
	w.wantOutcome(NotReady, "no store")
	live := w.api.create(newObject("ConfigMap", "ns", "live"))
	w.reconcile(live)
	if found := w.api.get(live).GetFinalizers(); len(found) != 0 {
		t.Errorf("it was attached: %v", found)
	}
}

func TestBuiltIn_ReleasesWhatItDoesNotSelect(t *testing.T) {
	never := labels.SelectorFromSet(labels.Set{"tier": "data"})
	for claim, change := range map[string]func(*policies.Finalizer){
		"another type":                   func(f *policies.Finalizer) { f.Rules[0].Resources = []string{"secrets"} },
		"other labels":                   func(f *policies.Finalizer) { f.ObjectSelector = never },
		"other labels of the namespace":  func(f *policies.Finalizer) { f.NamespaceSelector = never },
		"a copy in another namespace":    func(f *policies.Finalizer) { f.Namespace = "other" },
		"and is not ready at the moment": func(f *policies.Finalizer) { f.ObjectSelector, f.Handler = never, nil },
	} {
		t.Run(claim, func(t *testing.T) {
			w, h := newBuiltInEnv(t, change)
			o := w.createPending()
			w.reconcile(o)
			w.wantReleased(o)
			w.wantOutcome(Released, "does not select the object")
			if len(h.versions) != 0 {
				t.Error("it was handled")
			}
		})
	}
}

// An unread namespace is not one with other labels.
func TestBuiltIn_KeepsWhatItMaySelect(t *testing.T) {
	w, h := newBuiltInEnv(t, func(f *policies.Finalizer) { f.NamespaceSelector = labels.SelectorFromSet(labels.Set{"tier": "data"}) })
	o := w.createPending()
	w.api.failNamespaces()
	w.reconcile(o)
	w.wantFinalizer(o)
	w.wantOutcome(HostError, "read namespace")
	if len(h.versions) != 0 {
		t.Error("it was handled")
	}
}

// failNamespaces makes reads of namespaces fail.
func (a *fakeAPI) failNamespaces() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.override = func(r *http.Request) http.HandlerFunc {
		if strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/") && strings.Count(r.URL.Path, "/") == 4 {
			return internalError
		}
		return nil
	}
}

func TestWithdrawn_IsRemovedFromLiveObjects(t *testing.T) {
	w, h := newBuiltInEnv(t, func(f *policies.Finalizer) { f.Withdraw, f.Attach = true, false })
	o := w.api.create(newObject("ConfigMap", "ns", "live", entry, "example.com/other"))
	w.reconcile(o)
	if found := w.api.get(o).GetFinalizers(); len(found) != 1 || found[0] != "example.com/other" {
		t.Errorf("the object has %v", found)
	}
	w.wantOutcome(Released, "no longer applies")
	if len(h.versions) != 0 {
		t.Error("it was handled")
	}
}

// The object is deleted between the read and the write: it is not released unhandled.
func TestWithdrawn_StaysOnAnObjectThatWasDeletedMeanwhile(t *testing.T) {
	w, h := newBuiltInEnv(t, deleting)
	o := w.api.create(newObject("ConfigMap", "ns", "live", entry))
	deleted := false
	w.api.override = func(r *http.Request) http.HandlerFunc {
		if r.Method == http.MethodPatch && !deleted {
			deleted = true
			w.api.change(o, func(o *unstructured.Unstructured) { o.SetDeletionTimestamp(&metav1.Time{Time: start}) })
		}
		return nil
	}
	w.wantDelay(w.reconcile(o), restartDelay)
	w.wantFinalizer(o)
	w.reconcile(w.api.get(o))
	w.wantReleased(o)
	if len(h.versions) != 1 {
		t.Errorf("it was handled %d times, want once", len(h.versions))
	}
}

// The namespace controller deletes the resource and its objects in any order.
func TestWithdrawn_StaysInANamespaceThatIsBeingDeleted(t *testing.T) {
	w, _ := newBuiltInEnv(t, deleting, func(f *policies.Finalizer) { f.Namespace, f.Attach = "ns", false })
	namespace, o := newObject("Namespace", "", "ns"), w.api.create(newObject("ConfigMap", "ns", "live", entry))
	w.api.failNamespaces()
	if delay := w.reconcile(o); delay == 0 {
		t.Error("it is not retried although the namespace could not be read")
	}
	w.wantFinalizer(o)

	w.api.clearOverride()
	w.api.change(namespace, func(n *unstructured.Unstructured) {
		n.SetDeletionTimestamp(&metav1.Time{Time: start})
		n.SetFinalizers([]string{"kubernetes"})
	})
	w.wantDelay(w.reconcile(o), 0)
	w.wantFinalizer(o)
	if p, err := w.controller.resync(t.Context(), false); err != nil || !p || w.controller.progress().WithFinalizer != 1 {
		t.Errorf("the object does not count: %v, %+v", err, w.controller.progress())
	}
}

func TestWithdrawn_IsRemovedIfOnlyTheResourceIsDeleted(t *testing.T) {
	w, _ := newBuiltInEnv(t, deleting, func(f *policies.Finalizer) { f.Namespace = "ns" })
	for _, name := range []string{"a", "b"} {
		o := w.api.create(newObject("ConfigMap", "ns", name, entry))
		w.reconcile(o)
		if found := w.api.get(o).GetFinalizers(); len(found) != 0 {
			t.Errorf("%s has %v", name, found)
		}
	}
	if n := w.api.countRequests("GET /api/v1/namespaces/ns"); n != 3 {
		t.Errorf("%d reads of objects and of the namespace, want 3", n)
	}
}

// The rules may have selected other types when the finalizer was added.
func TestDeletedBuiltIn_WaitsForTypesThatItNoLongerSelects(t *testing.T) {
	w, _ := newBuiltInEnv(t, deleting)
	o := w.api.create(newObject("Secret", "ns", "o", entry))
	w.advance(time.Minute)
	if _, err := w.controller.resync(t.Context(), false); err != nil || w.controller.progress().WithFinalizer != 1 {
		t.Fatalf("the Secret is not counted: %v, %+v", err, w.controller.progress())
	}
	if w.controller.queue.Len() != 1 {
		t.Error("the Secret is not released")
	}
	w.reconcile(o)
	if _, err := w.controller.resync(t.Context(), false); err != nil || w.controller.progress().WithFinalizer != 0 || !w.controller.progress().Counted {
		t.Errorf("after its release: %v, %+v", err, w.controller.progress())
	}
}

func TestRunner_FindsLiveObjectsOfAWithdrawnFinalizer(t *testing.T) {
	w, _ := newBuiltInEnv(t, func(f *policies.Finalizer) { f.Withdraw, f.Attach = true, false })
	o := w.api.create(newObject("ConfigMap", "ns", "live", entry))
	w.runner.Apply(graph.Seen{Object: graph.ObjectOf(o.GroupVersionKind(), o)})
	if w.controller.queue.Len() != 1 {
		t.Error("the object was not enqueued")
	}
}
