package preview

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// createCRD creates a CustomResourceDefinition of Widgets, and returns its name once objects
// can be created.
func (w *env) createCRD() string {
	w.Helper()
	widgets := resources["Widget"]
	name := widgets.GroupResource().String()
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": resources["CustomResourceDefinition"].GroupVersion().String(), "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": widgets.Group, "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget"},
			"versions": []any{map[string]any{
				"name": widgets.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	made, err := w.client("CustomResourceDefinition").Create(w.Context(), definition, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.created[name] = made
	devtest.Eventually(w, timeout, func() error {
		if _, served := w.collector.ResourceOf(widgets.GroupVersion().WithKind("Widget")); !served {
			return errors.New("collector does not watch Widgets yet")
		}
		_, err := w.client("Widget").List(w.Context(), metav1.ListOptions{})
		return err
	})
	return name
}

// The API server deletes all objects of a type before its definition; until then a finalizer
// that it adds on deletion keeps the definition.
func TestPreview_OfADefinition(t *testing.T) {
	w := newEnv(t)
	definition := w.createCRD()
	w.create(`
		Widget a
		ConfigMap of-a owners=a
		Widget held finalizers=test.example.com/x
		ConfigMap of-held owners=held
		ConfigMap other`)
	predicted := w.outcomes(w.preview(definition, background))
	want := map[string]string{
		definition: "Waits then Goes", "a": "Goes", "of-a": "Goes", "held": "Waits then Goes", "of-held": "Waits then Goes",
	}
	if diff := cmp.Diff(want, predicted); diff != "" {
		t.Fatalf("preview (-want +got):\n%s", diff)
	}
	w.delete(definition, background)
	w.expectOutcomes(predicted)
	w.finishWaiting(predicted)
}
