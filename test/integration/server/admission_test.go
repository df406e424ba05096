package server

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/integration/hook"
)

type request = admissionv1.AdmissionRequest

// serveWebhook serves a webhook for DELETE, and for further operations, in the test's
// namespace.
func (a *api) serveWebhook(respond func(context.Context, *request) *metav1.Status, more ...registrationv1.OperationType) *hook.Hook {
	a.Helper()
	return hook.Serve(a, devtest.Shared(a), hook.Options{
		Namespace: a.ns, Operations: append(more, registrationv1.Delete), Resources: []string{"configmaps", "pods"}, Review: respond,
	})
}

func hookCall(operation admissionv1.Operation, o *unstructured.Unstructured) hook.Call {
	return hook.Call{Operation: operation, Name: o.GetName(), Object: o.GetName()}
}

func TestA10_EndOfAFinalizedObject_IsAnUpdate(t *testing.T) {
	a := newAPI(t)
	h := a.serveWebhook(nil, registrationv1.Update)
	o := a.createNew(configMap, testFinalizer)
	a.delete(configMap, o, deleteOptions(backgroundPolicy))
	if err := a.patch(configMap, o, map[string]any{"finalizers": nil}); err != nil {
		t.Fatal(err)
	}
	if a.get(configMap, o) != nil {
		t.Error("object without finalizers still exists")
	}
	want := []hook.Call{hookCall(admissionv1.Delete, o), hookCall(admissionv1.Update, o)}
	if diff := cmp.Diff(want, slices.Compact(h.Calls())); diff != "" {
		t.Error(diff)
	}
}

func TestA11_DeleteCollection_DeletesOneByOne(t *testing.T) {
	a := newAPI(t)
	h := a.serveWebhook(nil)
	var want []hook.Call
	for _, name := range []string{"a", "b", "c"} {
		a.createNamed(name)
		want = append(want, hook.Call{Operation: admissionv1.Delete, Object: name}) // the request has no name
	}
	if err := a.client(configMap).DeleteCollection(a.Context(), deleteOptions(foregroundPolicy), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, call := range want {
		a.expectFinalizers(configMap, objectNamed(call.Object), foregroundFinal)
	}
	got := h.Calls()
	slices.SortFunc(got, func(x, y hook.Call) int { return strings.Compare(x.Object, y.Object) })
	if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
		t.Error(diff)
	}
}

// An object that was deleted in the meantime is no error, and all are deleted with the
// options of the collection request.
func TestA11_DeleteCollection_IgnoresDeletedObjects(t *testing.T) {
	a := newAPI(t)
	var mu sync.Mutex // covers the fields below
	called, turns, options := map[string]bool{}, 0, map[string]bool{}
	var once sync.Once
	a.serveWebhook(func(_ context.Context, r *request) *metav1.Status {
		var before unstructured.Unstructured
		if err := before.UnmarshalJSON(r.OldObject.Raw); err != nil {
			a.Error(err)
		}
		mu.Lock()
		called[before.GetName()] = true
		if r.Name == "" {
			turns++
			options[string(r.Options.Raw)] = true
		}
		mu.Unlock()
		if r.Name == "" { // of the collection
			once.Do(func() {
				for _, name := range []string{"a", "b", "c"} {
					if name != before.GetName() {
						o := object(configMap)
						o.SetName(name)
						a.delete(configMap, o, deleteOptions(backgroundPolicy))
					}
				}
			})
		}
		return nil
	})
	for _, name := range []string{"a", "b", "c"} {
		o := object(configMap)
		o.SetName(name)
		a.create(configMap, o)
	}
	if err := a.client(configMap).DeleteCollection(a.Context(), deleteOptions(foregroundPolicy), metav1.ListOptions{}); err != nil {
		t.Errorf("two of three objects were gone: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(called) != 3 || len(options) != 1 {
		t.Errorf("webhook called for %v, with the options %v", called, options)
	}
	if turns != 1 { // otherwise the others still existed, and the test proves nothing
		t.Errorf("the collection called the webhook %d times; want once, for the first, since the others were gone", turns)
	}
	for o := range options {
		if !strings.Contains(o, `"propagationPolicy":"Foreground"`) {
			t.Errorf("deleted with the options %s", o)
		}
	}
	left, err := a.client(configMap).List(a.Context(), metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range left.Items {
		if o.GetDeletionTimestamp() == nil {
			t.Errorf("%s was not deleted", o.GetName())
		}
	}
}

func TestA11_DeleteCollection_IsNotAtomic(t *testing.T) {
	a := newAPI(t)
	a.serveWebhook(func(_ context.Context, r *request) *metav1.Status {
		var before unstructured.Unstructured
		if err := before.UnmarshalJSON(r.OldObject.Raw); err != nil {
			a.Error(err)
		}
		if before.GetName() == "b" {
			return &metav1.Status{Code: http.StatusForbidden, Message: "refused"}
		}
		return nil
	})
	a.createNamed("a")
	a.createNamed("b")
	err := a.client(configMap).DeleteCollection(a.Context(), deleteOptions(orphanPolicy), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("got error %v", err)
	}
	a.expectFinalizers(configMap, objectNamed("a"), orphanFinalizer)
	a.expectFinalizers(configMap, objectNamed("b"))
}

func objectNamed(name string) *unstructured.Unstructured {
	o := object(configMap, testFinalizer)
	o.SetName(name)
	return o
}

// createNamed creates a ConfigMap of that name with a finalizer.
func (a *api) createNamed(name string) {
	a.Helper()
	a.create(configMap, objectNamed(name))
}

func TestW05_OneDelete_MayCallAWebhookSeveralTimes(t *testing.T) {
	a := newAPI(t)
	var touch atomic.Bool
	h := a.serveWebhook(func(_ context.Context, r *request) *metav1.Status {
		if touch.CompareAndSwap(true, false) {
			o := &unstructured.Unstructured{}
			o.SetName(r.Name)
			if err := a.patch(configMap, o, map[string]any{"labels": map[string]string{"touched": "yes"}}); err != nil {
				a.Error(err)
			}
		}
		return nil
	})
	touched := a.createNew(configMap)
	touch.Store(true)
	a.delete(configMap, touched, deleteOptions(foregroundPolicy))
	forced := a.createScheduledPod()
	if err := a.patch(pod, forced, map[string]any{"finalizers": nil}); err != nil {
		t.Fatal(err)
	}
	options := deleteOptions(backgroundPolicy)
	options.GracePeriodSeconds = ptr.To[int64](0)
	a.delete(pod, forced, options)

	called := map[string]int{}
	for _, call := range h.Calls() {
		called[call.Object]++
	}
	if called[touched.GetName()] < 2 || called[forced.GetName()] < 2 {
		t.Errorf("calls by name: %v; want at least two for %s and %s", called, touched.GetName(), forced.GetName())
	}
}

// 3.18, A-13: a finalizer that is added during a DELETE is lost, unless the DELETE has a
// resourceVersion precondition: the collector's have one, and A-05 applies at the
// write itself.
func TestW06_3_18_FinalizerAddedDuringADelete(t *testing.T) {
	const late = "test.gleaner.dev/late"
	for name, c := range map[string]struct {
		had       string
		options   metav1.DeleteOptions
		insisting bool
		want      []string // remaining finalizers; nil: object is gone
		conflict  bool
	}{
		"is lost without a policy":                    {options: deleteOptions("")},
		"is lost with Background":                     {options: deleteOptions(backgroundPolicy)},
		"remains with Foreground":                     {options: deleteOptions(foregroundPolicy), want: []string{foregroundFinal, late}},
		"remains with Orphan":                         {options: deleteOptions(orphanPolicy), want: []string{late, orphanFinalizer}},
		"remains with another finalizer":              {options: deleteOptions(backgroundPolicy), had: testFinalizer, want: []string{late, testFinalizer}},
		"remains with a resourceVersion precondition": {options: deleteOptions(backgroundPolicy), insisting: true, want: []string{late}, conflict: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			var first atomic.Bool // call of the webhook
			first.Store(true)
			a.serveWebhook(func(_ context.Context, r *request) *metav1.Status {
				if first.CompareAndSwap(true, false) {
					o := &unstructured.Unstructured{}
					o.SetName(r.Name)
					if err := a.patch(configMap, o, map[string]any{"finalizers": finalizersOf(c.had, late)}); err != nil {
						a.Error(err)
					}
				}
				return nil
			})
			o := a.createNew(configMap, finalizersOf(c.had)...)
			options := c.options
			if c.insisting {
				options.Preconditions = &metav1.Preconditions{UID: ptr.To(o.GetUID()), ResourceVersion: ptr.To(o.GetResourceVersion())}
			}
			err := a.client(configMap).Delete(a.Context(), o.GetName(), options)
			if apierrors.IsConflict(err) != c.conflict || !c.conflict && err != nil {
				t.Errorf("got error %v", err)
			}
			var got []string
			if live := a.get(configMap, o); live != nil {
				got = live.GetFinalizers()
			}
			slices.Sort(got)
			want := slices.Sorted(slices.Values(c.want))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("finalizers (-want +got):\n%s", diff)
			}
		})
	}
}

func finalizersOf(names ...string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}
