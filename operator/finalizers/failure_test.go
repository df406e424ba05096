package finalizers

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/policies"
)

func TestReadError_KeepsTheObjectPending(t *testing.T) {
	another := func(w http.ResponseWriter, r *http.Request) { respond(w, r, newObject("ConfigMap", "ns", "p", entry)) }
	for name, response := range map[string]http.HandlerFunc{
		"404 of a proxy": proxy404, "an error": internalError, "forbidden": forbidden, "another object": another,
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv(t)
			o := w.createPending()
			w.api.overrideMethod(http.MethodGet, response)
			w.wantDelay(w.reconcile(o), time.Second)
			w.wantOutcome(HostError, "read: ")
			if p := w.controller.progress(); p.Pending != 1 || len(p.Stuck) != 1 || p.Stuck[0].Object.Name != "o" {
				t.Errorf("progress: %+v", p)
			}
			w.api.clearOverride()
			w.reconcile(o)
			w.wantOutcome(Done, "")
		})
	}
}

func TestGoneObject_IsForgotten(t *testing.T) {
	for name, end := range map[string]func(w *testEnv, o *unstructured.Unstructured){
		"deleted": func(w *testEnv, o *unstructured.Unstructured) { w.api.remove(o) },
		"replaced": func(w *testEnv, o *unstructured.Unstructured) {
			w.api.remove(o)
			another := o.DeepCopy()
			another.SetUID("another")
			w.api.create(another)
		},
		"without the finalizer": func(w *testEnv, o *unstructured.Unstructured) {
			w.api.change(o, func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/other"}) })
		},
		"type no longer served": func(w *testEnv, _ *unstructured.Unstructured) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.types = typesOf("secrets")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv(t)
			w.module.returns(waitVerdict)
			o := w.createPending()
			w.reconcile(o)
			end(w, o)
			w.module.returns(doneVerdict)
			w.wantDelay(w.reconcile(o), 0)
			if p := w.controller.progress(); p.Pending != 0 {
				t.Errorf("progress: %+v", p)
			}
			if n := len(w.module.takeRequests()); n != 1 {
				t.Errorf("evaluated %d times", n)
			}
		})
	}
}

// The object is replaced between the verdict and the write.
func TestDone_DoesNotApplyToAReplacedObject(t *testing.T) {
	w := newTestEnv(t)
	o := w.createPending()
	w.module.respond = func(hostabi.Request) (hostabi.Verdict, error) {
		w.api.remove(o)
		another := newObject("ConfigMap", "ns", "o", entry)
		another.SetUID("another")
		w.api.create(another)
		return doneVerdict, nil
	}
	w.wantDelay(w.reconcile(o), 0)
	w.wantFinalizer(o)
	if n := w.lastOutcome(); n.Removed {
		t.Errorf("outcome: %+v", n)
	}
}

func TestConflict_KeepsChangesOfOthers(t *testing.T) {
	w := newTestEnv(t)
	o := w.createDeleted("ConfigMap", "example.com/a", entry, "example.com/b")
	w.module.respond = func(hostabi.Request) (hostabi.Verdict, error) {
		w.api.change(o, func(o *unstructured.Unstructured) {
			o.SetFinalizers(slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return f == "example.com/a" }))
			o.SetAnnotations(map[string]string{"theirs": "", objectstate.FinalizersAnnotation: `{"uid": "x"}`})
		})
		return doneVerdict, nil
	}
	w.wantDelay(w.reconcile(o), 0)
	live := w.api.get(o)
	if diff := cmp.Diff([]string{"example.com/b"}, live.GetFinalizers()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"theirs": ""}, live.GetAnnotations()); diff != "" {
		t.Error(diff)
	}
}

func TestConflict_ThatPersistsIsRetried(t *testing.T) {
	w := newTestEnv(t)
	o := w.createPending()
	w.api.overrideMethod(http.MethodPatch, conflict)
	w.wantDelay(w.reconcile(o), time.Second)
	w.wantOutcome(HostError, "remove finalizer: ")
	w.wantFinalizer(o)
	w.api.clearOverride()
	w.advance(time.Second)
	w.wantDelay(w.reconcile(o), 0)
	w.wantOutcome(Done, "")
}

// Several writes of one reconciliation need one read: each is based on the response to the one before.
func TestReconcile_ReadsTheObjectOnce(t *testing.T) {
	w := newTestEnv(t)
	state, rounds := []byte(`1`), 0
	w.module.respond = func(r hostabi.Request) (hostabi.Verdict, error) {
		if rounds++; rounds == 3 {
			return doneVerdict, nil
		}
		state = append(state, '1')
		return hostabi.Verdict{Decision: hostabi.DecisionAct, State: state}, nil
	}
	o := w.createPending()
	w.reconcile(o)
	w.wantOutcome(Done, "")
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	const at = "/api/v1/namespaces/ns/configmaps/o"
	want := []string{"GET " + at, "GET /api/v1/namespaces/ns", "PATCH " + at, "PATCH " + at, "PATCH " + at}
	if diff := cmp.Diff(want, w.api.requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestWrite_RejectsResponsesWithAnotherObject(t *testing.T) {
	w := newTestEnv(t)
	o := w.createPending()
	w.api.overrideMethod(http.MethodPatch, func(rw http.ResponseWriter, r *http.Request) { respond(rw, r, newObject("ConfigMap", "ns", "o")) })
	w.wantDelay(w.reconcile(o), time.Second)
	w.wantOutcome(HostError, "contains another object")
	if p := w.controller.progress(); p.Pending != 1 || p.Released != 0 {
		t.Errorf("progress: %+v", p)
	}
}

func TestCycle_IsReported(t *testing.T) {
	other := func(w *testEnv, name string, after ...string) {
		f := w.finalizer(func(f *policies.Finalizer) { f.UID, f.Entry, f.After = types.UID(name), name, after })
		w.runner.byEntry[name] = newController(w.runner, activeFinalizer{Finalizer: f})
		w.Cleanup(w.runner.byEntry[name].queue.ShutDown)
	}
	after := func(names ...string) func(*policies.Finalizer) {
		return func(f *policies.Finalizer) { f.After = names }
	}
	t.Run("two", func(t *testing.T) {
		w := newTestEnv(t, after("example.com/b"))
		other(w, "example.com/b", entry)
		o := w.createDeleted("ConfigMap", entry, "example.com/b")
		w.wantDelay(w.reconcile(o), 0)
		w.wantOutcome(Circular, "example.com/f after example.com/b after example.com/f): remove one of them from after")
		if p := w.controller.progress(); len(p.Stuck) != 1 || p.Stuck[0].Reason != "Circular" {
			t.Errorf("progress: %+v", p)
		}
		w.wantFinalizer(o)
	})
	t.Run("three, and one that only waits for them", func(t *testing.T) {
		w := newTestEnv(t, after("example.com/d", "example.com/b"))
		other(w, "example.com/b", "example.com/c")
		other(w, "example.com/c", entry, "example.com/b")
		other(w, "example.com/d", "example.com/b")
		w.reconcile(w.createDeleted("ConfigMap", entry, "example.com/b", "example.com/c", "example.com/d"))
		w.wantOutcome(Circular, "example.com/f after example.com/d after example.com/b after example.com/c after example.com/f")
	})
	t.Run("not for a finalizer outside the cycle", func(t *testing.T) {
		w := newTestEnv(t, after("example.com/b"))
		other(w, "example.com/b", "example.com/c")
		other(w, "example.com/c", "example.com/b")
		w.reconcile(w.createDeleted("ConfigMap", entry, "example.com/b", "example.com/c"))
		w.wantOutcome(Waiting, "waiting for the finalizer example.com/b")
	})
	t.Run("not if the object has only one of them", func(t *testing.T) {
		w := newTestEnv(t, after("example.com/b"))
		other(w, "example.com/b", entry)
		w.reconcile(w.createPending())
		w.wantOutcome(Done, "")
	})
	t.Run("not for a finalizer that names itself", func(t *testing.T) {
		w := newTestEnv(t, after(entry))
		w.reconcile(w.createPending())
		w.wantOutcome(Done, "")
	})
}

func TestNamespacedFinalizer_IgnoresOtherNamespaces(t *testing.T) {
	w := newTestEnv(t, func(f *policies.Finalizer) {
		f.Namespace, f.Deleting, f.ReleaseOnRemoval, f.ReleaseAtDeadline, f.Deadline = "other", true, true, true, time.Second
	})
	w.advance(time.Hour)
	o := w.createPending()
	w.wantDelay(w.reconcile(o), 0)
	w.wantOutcome(NotSelected, "does not apply outside its namespace")
	live := w.api.create(newObject("ConfigMap", "ns", "live", entry))
	w.reconcile(live)
	w.wantFinalizer(o)
	w.wantFinalizer(live)
}

func TestRemovedFinalizer_KeepsObjectsOfDuplicates(t *testing.T) {
	w := newTestEnv(t)
	w.restart(w.finalizer(func(f *policies.Finalizer) {
		f.Deleting, f.ReleaseOnRemoval, f.ReleaseAtDeadline, f.Deadline = true, true, true, time.Second
	}))
	w.controller.update(activeFinalizer{Finalizer: w.controller.finalizer().Finalizer, shared: true})
	w.advance(time.Hour)
	w.module.returns(waitVerdict)
	o := w.createPending()
	w.reconcile(o)
	w.wantFinalizer(o)
	w.controller.update(activeFinalizer{Finalizer: w.controller.finalizer().Finalizer})
	w.reconcile(o)
	w.wantOutcome(Released, "onRemoval: Release")
}

func TestMatchConditions_ThatFailAreAFault(t *testing.T) {
	w := newTestEnv(t, func(f *policies.Finalizer) {
		f.Matches = func(context.Context, map[string]any) (bool, error) { return false, errors.New("no such key: spec") }
	})
	o := w.createPending()
	w.wantDelay(w.reconcile(o), time.Second)
	w.wantOutcome(Fault, "no such key: spec")
	w.wantFinalizer(o)
}
