package main

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// Each check of a wave must detect a manipulation of its objects.
func TestWave_DetectsLoss(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(t *testing.T, w *wave, o *unstructured.Unstructured)
		look    func(*wave, context.Context) error
		want    string
	}{
		"nothing": {
			func(*testing.T, *wave, *unstructured.Unstructured) {}, (*wave).checkUnchanged, ""},
		"an object is deleted before any delete": {
			deleteObject, (*wave).checkUnchanged, "was lost before any delete"},
		"a reference is removed before any delete": {
			removeOwners, (*wave).checkUnchanged, "has owners [], want [owner]"},
		"a held object is deleted": {
			deleteObject, (*wave).checkHeld, "is gone, want it kept by a policy with a fault"},
		"a held object loses its owner": {
			removeOwners, (*wave).checkHeld, "want it kept by a policy with a fault"},
		"a remaining object is deleted": {
			deleteObject, (*wave).checkRemaining, "is gone, want it kept with owners [owner]"},
		"an object is deleted without a request to the site": {
			deleteObject, (*wave).waitForDeletions, "without a request to the site"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &testbed{api: &api{fake.NewClientBuilder().Build()}, site: newFakeServer()}
			s.progress = t.Output()
			defer s.site.close()
			w := &wave{testbed: s, name: "ns"}
			o, err := w.create(t.Context(), configMaps, objectSpec{owners: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "owner", UID: "u"}}})
			if err != nil {
				t.Fatal(err)
			}
			made := o.DeepCopy()
			w.all, w.held, w.stays = []*unstructured.Unstructured{made}, []*unstructured.Unstructured{made}, []remaining{{made, []string{"owner"}}}
			if strings.Contains(c.want, "site") {
				w.held, w.toDelete, w.wantRequests = nil, w.all, []string{o.GetName()}
			}
			c.happens(t, w, o)
			if err := c.look(w, t.Context()); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(s.problems, "; ")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func deleteObject(t *testing.T, w *wave, o *unstructured.Unstructured) {
	t.Helper()
	if err := w.api.client.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func removeOwners(t *testing.T, w *wave, o *unstructured.Unstructured) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"ownerReferences":null}}`))
	if err := w.api.client.Patch(t.Context(), o, patch); err != nil {
		t.Fatal(err)
	}
}
