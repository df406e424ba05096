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

// asked serves a webhook about what is deleted, and more, in the test's
// namespace.
func (a *api) asked(answer func(context.Context, *request) *metav1.Status, more ...registrationv1.OperationType) *hook.Hook {
	a.Helper()
	return hook.Serve(a, devtest.Shared(a), hook.Options{
		Namespace: a.ns, Operations: append(more, registrationv1.Delete), Resources: []string{"configmaps", "pods"}, Answer: answer,
	})
}

func call(operation admissionv1.Operation, o *unstructured.Unstructured) hook.Call {
	return hook.Call{Operation: operation, Name: o.GetName(), Object: o.GetName()}
}

func TestA10_TheEndOfAHeldObjectIsAnUpdateToAdmission(t *testing.T) {
	a := newAPI(t)
	h := a.asked(nil, registrationv1.Update)
	o := a.make(configMap, hold)
	a.delete(configMap, o, by(backgroundPolicy))
	if err := a.patch(configMap, o, map[string]any{"finalizers": nil}); err != nil {
		t.Fatal(err)
	}
	if a.get(configMap, o) != nil {
		t.Error("without finalizers it is still there")
	}
	want := []hook.Call{call(admissionv1.Delete, o), call(admissionv1.Update, o)}
	if diff := cmp.Diff(want, slices.Compact(h.Calls())); diff != "" {
		t.Error(diff)
	}
}

func TestA11_ACollectionIsDeletedOneByOne(t *testing.T) {
	a := newAPI(t)
	h := a.asked(nil)
	var want []hook.Call
	for _, name := range []string{"a", "b", "c"} {
		a.named(name)
		want = append(want, hook.Call{Operation: admissionv1.Delete, Object: name}) // the request has no name
	}
	if err := a.client(configMap).DeleteCollection(a.Context(), by(foregroundPolicy), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, call := range want {
		a.finalizers(configMap, named(call.Object), foregroundFinal)
	}
	got := h.Calls()
	slices.SortFunc(got, func(x, y hook.Call) int { return strings.Compare(x.Object, y.Object) })
	if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
		t.Error(diff)
	}
}

// What has gone by the time that its turn comes is no error, and each is deleted by the
// options of the whole.
func TestA11_WhatHasGoneMeanwhileIsNoErrorOfACollection(t *testing.T) {
	a := newAPI(t)
	var mu sync.Mutex // covers what follows
	asked, turns, options := map[string]bool{}, 0, map[string]bool{}
	var once sync.Once
	a.asked(func(_ context.Context, r *request) *metav1.Status {
		var before unstructured.Unstructured
		if err := before.UnmarshalJSON(r.OldObject.Raw); err != nil {
			a.Error(err)
		}
		mu.Lock()
		asked[before.GetName()] = true
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
						a.delete(configMap, o, by(backgroundPolicy))
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
	if err := a.client(configMap).DeleteCollection(a.Context(), by(foregroundPolicy), metav1.ListOptions{}); err != nil {
		t.Errorf("two of three had gone: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != 3 || len(options) != 1 {
		t.Errorf("asked about %v, with the options %v", asked, options)
	}
	if turns != 1 { // or the others had not gone by their turn, and this test shows nothing
		t.Errorf("the collection asked %d times; want once, about the first, since the others had gone", turns)
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
			t.Errorf("%s is not deleted", o.GetName())
		}
	}
}

func TestA11_ACollectionIsNotAllOrNothing(t *testing.T) {
	a := newAPI(t)
	a.asked(func(_ context.Context, r *request) *metav1.Status {
		var before unstructured.Unstructured
		if err := before.UnmarshalJSON(r.OldObject.Raw); err != nil {
			a.Error(err)
		}
		if before.GetName() == "b" {
			return &metav1.Status{Code: http.StatusForbidden, Message: "refused"}
		}
		return nil
	})
	a.named("a")
	a.named("b")
	err := a.client(configMap).DeleteCollection(a.Context(), by(orphanPolicy), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("answered: %v", err)
	}
	a.finalizers(configMap, named("a"), orphanFinalizer)
	a.finalizers(configMap, named("b"))
}

func named(name string) *unstructured.Unstructured {
	o := object(configMap, hold)
	o.SetName(name)
	return o
}

// named makes a held ConfigMap of that name.
func (a *api) named(name string) {
	a.Helper()
	a.create(configMap, named(name))
}

func TestW05_OneDeleteMayAskAWebhookMoreThanOnce(t *testing.T) {
	a := newAPI(t)
	var touch atomic.Bool
	h := a.asked(func(_ context.Context, r *request) *metav1.Status {
		if touch.CompareAndSwap(true, false) {
			o := &unstructured.Unstructured{}
			o.SetName(r.Name)
			if err := a.patch(configMap, o, map[string]any{"labels": map[string]string{"touched": "yes"}}); err != nil {
				a.Error(err)
			}
		}
		return nil
	})
	touched := a.make(configMap)
	touch.Store(true)
	a.delete(configMap, touched, by(foregroundPolicy))
	forced := a.scheduled()
	if err := a.patch(pod, forced, map[string]any{"finalizers": nil}); err != nil {
		t.Fatal(err)
	}
	options := by(backgroundPolicy)
	options.GracePeriodSeconds = ptr.To[int64](0)
	a.delete(pod, forced, options)

	asked := map[string]int{}
	for _, call := range h.Calls() {
		asked[call.Object]++
	}
	if asked[touched.GetName()] < 2 || asked[forced.GetName()] < 2 {
		t.Errorf("asked, by name: %v; want twice at least for %s and %s", asked, touched.GetName(), forced.GetName())
	}
}

// 3.18, A-13: a finalizer that somebody adds while a DELETE is on its way loses
// against it, unless the DELETE insists on a version: the collector's do, and
// A-05 is kept at the very write.
func TestW06_3_18_AFinalizerAddedMeanwhile(t *testing.T) {
	const late = "test.gleaner.dev/late"
	for name, c := range map[string]struct {
		had       string
		options   metav1.DeleteOptions
		insisting bool
		want      []string // that are left; nil: it is gone
		conflict  bool
	}{
		"loses against no wish":                      {options: by("")},
		"loses against Background":                   {options: by(backgroundPolicy)},
		"wins against Foreground":                    {options: by(foregroundPolicy), want: []string{foregroundFinal, late}},
		"wins against Orphan":                        {options: by(orphanPolicy), want: []string{late, orphanFinalizer}},
		"wins beside another":                        {options: by(backgroundPolicy), had: hold, want: []string{late, hold}},
		"wins against one that insists on a version": {options: by(backgroundPolicy), insisting: true, want: []string{late}, conflict: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			var first atomic.Bool // time that it is asked
			first.Store(true)
			a.asked(func(_ context.Context, r *request) *metav1.Status {
				if first.CompareAndSwap(true, false) {
					o := &unstructured.Unstructured{}
					o.SetName(r.Name)
					if err := a.patch(configMap, o, map[string]any{"finalizers": finalizersOf(c.had, late)}); err != nil {
						a.Error(err)
					}
				}
				return nil
			})
			o := a.make(configMap, finalizersOf(c.had)...)
			options := c.options
			if c.insisting {
				options.Preconditions = &metav1.Preconditions{UID: ptr.To(o.GetUID()), ResourceVersion: ptr.To(o.GetResourceVersion())}
			}
			err := a.client(configMap).Delete(a.Context(), o.GetName(), options)
			if apierrors.IsConflict(err) != c.conflict || !c.conflict && err != nil {
				t.Errorf("answered: %v", err)
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
