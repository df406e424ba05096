package integration

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/integration/hook"
)

// asked serves a webhook about each DELETE of one object.
func (w *world) asked(name string, answer func() *metav1.Status) *hook.Hook {
	w.Helper()
	return hook.Serve(w, devtest.Shared(w), hook.Options{
		Namespace: w.ns, Operations: []registrationv1.OperationType{registrationv1.Delete}, Resources: []string{"configmaps"},
		Answer: func(_ context.Context, r *admissionv1.AdmissionRequest) *metav1.Status {
			if r.Name != name {
				return nil
			}
			return answer()
		},
	})
}

// times is how often a webhook was asked about an object.
func times(h *hook.Hook, name string) int {
	n := 0
	for _, call := range h.Calls() {
		if call.Object == name {
			n++
		}
	}
	return n
}

// 3.18: whoever adds a finalizer to an object that the collector is deleting,
// be it in a webhook about that very DELETE, holds it: the DELETE insists on a
// version, and the next one finds the finalizer.
func TestW07_3_18_AFinalizerAddedDuringTheCollectorsDeleteHolds(t *testing.T) {
	w := newWorld(t)
	owner := w.make(thing{name: "owner"})
	dependent := w.make(thing{name: "dependent", owners: owns(owner)})
	w.seen(owner, dependent)
	var added atomic.Bool
	w.asked("dependent", func() *metav1.Status {
		if added.CompareAndSwap(false, true) {
			w.patch(dependent, map[string]any{"metadata": map[string]any{"finalizers": []string{hold}}})
		}
		return nil
	})
	w.delete(owner, background)
	w.ending(dependent)
	w.calm()
	live := w.get(dependent)
	if live == nil {
		t.Fatal("the finalizer did not hold it")
	}
	if got := live.GetFinalizers(); len(got) != 1 || got[0] != hold {
		t.Errorf("finalizers are %v", got)
	}
	w.patch(dependent, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	w.goes(dependent)
}

// A webhook that takes the reference off and answers 409 keeps the object: the
// collector reads it again and finds nothing to collect.
func TestW08_AWebhookVetoesACollection(t *testing.T) {
	for name, policy := range map[string]metav1.DeletionPropagation{"background": background, "foreground": foreground} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			owner := w.make(thing{name: "owner"})
			dependent := w.make(thing{name: "dependent", owners: blocks(owner)})
			other := w.make(thing{name: "other", owners: blocks(owner)})
			w.seen(owner, dependent, other)
			h := w.asked("dependent", func() *metav1.Status {
				w.patch(dependent, map[string]any{"metadata": map[string]any{"ownerReferences": nil}})
				return &metav1.Status{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: "kept by a webhook"}
			})
			w.delete(owner, policy)
			w.goes(owner, other)
			w.ownedBy(dependent)
			w.stays(dependent)
			if n := times(h, "dependent"); n != 1 {
				t.Errorf("the webhook was asked %d times", n)
			}
		})
	}
}

// 3.28: a plain refusal is tried again, and does not hold up anything else.
func TestW08_3_28_ARefusedDeleteIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	owner := w.make(thing{name: "owner"})
	refused := w.make(thing{name: "refused", owners: owns(owner)})
	other := w.make(thing{name: "other", owners: owns(owner)})
	w.seen(owner, refused, other)
	var allow atomic.Bool
	h := w.asked("refused", func() *metav1.Status {
		if allow.Load() {
			return nil
		}
		return &metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "refused by a webhook"}
	})
	w.delete(owner, background)
	w.goes(owner, other)
	devtest.Eventually(t, patience, func() error {
		if n := times(h, "refused"); n < 2 {
			return fmt.Errorf("it was tried %d times", n)
		}
		return nil
	})
	if live := w.get(refused); live == nil {
		t.Fatal("it is gone, although it was refused")
	}
	allow.Store(true)
	w.goes(refused)
}
