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

// serveDeleteWebhook serves a webhook for the deletion of one object.
func (w *env) serveDeleteWebhook(name string, respond func() *metav1.Status) *hook.Hook {
	w.Helper()
	return hook.Serve(w, devtest.Shared(w), hook.Options{
		Namespace: w.ns, Operations: []registrationv1.OperationType{registrationv1.Delete}, Resources: []string{"configmaps"},
		Review: func(_ context.Context, r *admissionv1.AdmissionRequest) *metav1.Status {
			if r.Name != name {
				return nil
			}
			return respond()
		},
	})
}

// countCalls returns how often a webhook was called for an object.
func countCalls(h *hook.Hook, name string) int {
	n := 0
	for _, call := range h.Calls() {
		if call.Object == name {
			n++
		}
	}
	return n
}

// 3.18: a finalizer that is added during the collector's DELETE, even by a webhook for
// that DELETE, keeps the object: the DELETE has a resourceVersion precondition, and the
// next one finds the finalizer.
func TestW07_3_18_FinalizerAddedDuringCollection_KeepsTheObject(t *testing.T) {
	w := newEnv(t)
	owner := w.create(objectSpec{name: "owner"})
	dependent := w.create(objectSpec{name: "dependent", owners: ownerRefs(owner)})
	w.waitForGraph(owner, dependent)
	var added atomic.Bool
	w.serveDeleteWebhook("dependent", func() *metav1.Status {
		if added.CompareAndSwap(false, true) {
			w.patch(dependent, map[string]any{"metadata": map[string]any{"finalizers": []string{testFinalizer}}})
		}
		return nil
	})
	w.delete(owner, background)
	w.waitForTerminating(dependent)
	w.waitUntilIdle()
	live := w.get(dependent)
	if live == nil {
		t.Fatal("finalizer did not keep the object")
	}
	if got := live.GetFinalizers(); len(got) != 1 || got[0] != testFinalizer {
		t.Errorf("finalizers are %v", got)
	}
	w.patch(dependent, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	w.waitForDeletion(dependent)
}

// A webhook that removes the reference and returns 409 keeps the object: the
// collector reads it again, and it is no longer garbage.
func TestW08_Webhook_CanVetoACollection(t *testing.T) {
	for name, policy := range map[string]metav1.DeletionPropagation{"background": background, "foreground": foreground} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t)
			owner := w.create(objectSpec{name: "owner"})
			dependent := w.create(objectSpec{name: "dependent", owners: blockingRefs(owner)})
			other := w.create(objectSpec{name: "other", owners: blockingRefs(owner)})
			w.waitForGraph(owner, dependent, other)
			h := w.serveDeleteWebhook("dependent", func() *metav1.Status {
				w.patch(dependent, map[string]any{"metadata": map[string]any{"ownerReferences": nil}})
				return &metav1.Status{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: "kept by a webhook"}
			})
			w.delete(owner, policy)
			w.waitForDeletion(owner, other)
			w.waitForOwners(dependent)
			w.expectKept(dependent)
			if n := countCalls(h, "dependent"); n != 1 {
				t.Errorf("webhook was called %d times", n)
			}
		})
	}
}

// 3.28: a refused delete is retried, and does not delay others.
func TestW08_3_28_RefusedDelete_IsRetried(t *testing.T) {
	w := newEnv(t)
	owner := w.create(objectSpec{name: "owner"})
	refused := w.create(objectSpec{name: "refused", owners: ownerRefs(owner)})
	other := w.create(objectSpec{name: "other", owners: ownerRefs(owner)})
	w.waitForGraph(owner, refused, other)
	var allow atomic.Bool
	h := w.serveDeleteWebhook("refused", func() *metav1.Status {
		if allow.Load() {
			return nil
		}
		return &metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "refused by a webhook"}
	})
	w.delete(owner, background)
	w.waitForDeletion(owner, other)
	devtest.Eventually(t, timeout, func() error {
		if n := countCalls(h, "refused"); n < 2 {
			return fmt.Errorf("deleted %d times", n)
		}
		return nil
	})
	if live := w.get(refused); live == nil {
		t.Fatal("object is gone, although the delete was refused")
	}
	allow.Store(true)
	w.waitForDeletion(refused)
}
