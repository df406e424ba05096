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

// Each look at a wave has to notice what somebody has done to its objects.
func TestAWaveNoticesWhatIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(t *testing.T, w *wave, o *unstructured.Unstructured)
		look    func(*wave, context.Context) error
		want    string
	}{
		"nothing": {
			func(*testing.T, *wave, *unstructured.Unstructured) {}, (*wave).unharmed, ""},
		"an object that goes before anything is deleted": {
			remove, (*wave).unharmed, "was lost, and nobody had deleted anything yet"},
		"a reference that goes before anything is deleted": {
			free, (*wave).unharmed, "is owned by [], and was by [owner]"},
		"an object that goes and was to be held": {
			remove, (*wave).holds, "is gone, and was to be held by a policy at fault"},
		"an object that loses its owner and was to be held": {
			free, (*wave).holds, "was to be held by a policy at fault"},
		"an object that goes and was to stay": {
			remove, (*wave).remains, "is gone, and was to stay with the owners [owner]"},
		"one that went without the site being told": {
			remove, (*wave).settled, "the site was not asked to delete"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stage{api: &api{fake.NewClientBuilder().Build()}, site: newSite()}
			s.progress = t.Output()
			defer s.site.close()
			w := &wave{stage: s, name: "ns"}
			o, err := w.make(t.Context(), configMaps, thing{owners: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "owner", UID: "u"}}})
			if err != nil {
				t.Fatal(err)
			}
			made := o.DeepCopy()
			w.all, w.held, w.stays = []*unstructured.Unstructured{made}, []*unstructured.Unstructured{made}, []remaining{{made, []string{"owner"}}}
			if strings.Contains(c.want, "site") {
				w.held, w.goes, w.sent = nil, w.all, []string{o.GetName()}
			}
			c.happens(t, w, o)
			if err := c.look(w, t.Context()); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(s.wrongs, "; ")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("it says %q, want %q", got, c.want)
			}
		})
	}
}

func remove(t *testing.T, w *wave, o *unstructured.Unstructured) {
	t.Helper()
	if err := w.api.client.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func free(t *testing.T, w *wave, o *unstructured.Unstructured) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"ownerReferences":null}}`))
	if err := w.api.client.Patch(t.Context(), o, patch); err != nil {
		t.Fatal(err)
	}
}
