package finalizers

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/statekey"
)

// testKeys are the operator's keys.
var testKeys, _ = statekey.Parse(map[string][]byte{statekey.Current: bytes.Repeat([]byte{1}, statekey.MinBytes)})

func annotated(text string) *unstructured.Unstructured {
	o := newObject("ConfigMap", "ns", "o")
	o.SetUID("mine")
	o.SetAnnotations(map[string]string{objectstate.FinalizersAnnotation: text})
	return o
}

func TestFingerprint_IgnoresOwnChanges(t *testing.T) {
	before := annotated("a")
	before.SetLabels(map[string]string{"a": "b"})
	first := fingerprintOf(before)
	for name, c := range map[string]struct {
		change func(*unstructured.Unstructured)
		same   bool
	}{
		"own state": {func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{objectstate.FinalizersAnnotation: "b"})
		}, true},
		"own annotation":  {func(o *unstructured.Unstructured) { o.SetAnnotations(nil) }, true},
		"managed fields":  {func(o *unstructured.Unstructured) { o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "x"}}) }, true},
		"resourceVersion": {func(o *unstructured.Unstructured) { o.SetResourceVersion("9") }, true},
		"an annotation":   {func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{"theirs": ""}) }, false},
		"a label":         {func(o *unstructured.Unstructured) { o.SetLabels(nil) }, false},
		"a finalizer":     {func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"x"}) }, false},
		"a field":         {func(o *unstructured.Unstructured) { o.Object["data"] = map[string]any{"a": "b"} }, false},
		"nothing":         {func(*unstructured.Unstructured) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := before.DeepCopy()
			c.change(o)
			was := o.DeepCopy()
			if same := fingerprintOf(o) == first; same != c.same {
				t.Errorf("the same: %t", same)
			}
			if diff := cmp.Diff(was, o); diff != "" {
				t.Errorf("it was changed: %s", diff)
			}
		})
	}
}
