package finalize

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func annotated(text string) *unstructured.Unstructured {
	o := object("ConfigMap", "ns", "o")
	o.SetUID("mine")
	o.SetAnnotations(map[string]string{Annotation: text})
	return o
}

func TestWhatIsNotAboutTheObjectCountsForNothing(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "not JSON": "{", "a list": "[]", "null": "null", "no UID": `{"by": {"example.com/f": {"attempt": 3}}}`,
		"another object's": `{"uid": "another", "by": {"example.com/f": {"failed": "x"}}}`, "nobody's": `{"uid": "mine", "by": null}`,
		"of a wrong type": `{"uid": "mine", "by": {"example.com/f": {"attempt": "3"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if m := memoryOf(annotated(text), entry); !m.empty() {
				t.Errorf("remembered: %+v", m)
			}
		})
	}
}

func TestFinalizersShareTheNotebookOfAnObject(t *testing.T) {
	o := annotated("garbage")
	write := func(entry string, m memory) {
		text, err := notebookOf(o).with(entry, m)
		if err != nil {
			t.Fatal(err)
		}
		o.SetAnnotations(nil)
		if text != nil {
			o.SetAnnotations(map[string]string{Annotation: *text})
		}
	}
	a, b := memory{Attempt: 1, State: json.RawMessage(`1`)}, memory{Attempt: 2, Failed: "x", Of: "y"}
	write("a", a)
	write("b", b)
	if diff := cmp.Diff([]memory{a, b}, []memory{memoryOf(o, "a"), memoryOf(o, "b")}); diff != "" {
		t.Error(diff)
	}
	write("a", memory{})
	if diff := cmp.Diff([]memory{{}, b}, []memory{memoryOf(o, "a"), memoryOf(o, "b")}); diff != "" {
		t.Error(diff)
	}
	write("b", memory{})
	if got := o.GetAnnotations(); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

// Whoever may write the object may write anything there.
func FuzzNotebook(f *testing.F) {
	for _, seed := range []string{
		"", "{}", `{"uid":"mine","by":{}}`, `{"uid":"mine","by":{"example.com/f":{"attempt":9223372036854775807,"state":null}}}`,
		`{"uid":"mine","by":{"example.com/f":{"attempt":-1,"state":{"a":[1]},"failed":"x","of":"y"},"other":{"state":1}}}`,
		`{"UID":"mine","By":{"\u0000":{}}}`, `{"uid":"another","by":{"example.com/f":{"state":1}}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o := annotated(text)
		m := memoryOf(o, entry)
		if m.Attempt < 0 || m.Attempt+1 < m.Attempt {
			t.Fatalf("attempt %d", m.Attempt)
		}
		if len(m.State) != 0 && !json.Valid(m.State) {
			t.Fatalf("state %q", m.State)
		}
		written, err := notebookOf(o).with(entry, memory{Attempt: 7, State: json.RawMessage(`{"a":1}`)})
		if err != nil || written == nil {
			t.Fatalf("with: %v %v", written, err)
		}
		again := annotated(*written)
		if got := memoryOf(again, entry); got.Attempt != 7 || !bytes.Equal(got.State, []byte(`{"a":1}`)) || got.Failed != "" {
			t.Fatalf("remembered %+v of %s", got, *written)
		}
		if left, err := notebookOf(again).with(entry, memory{}); err != nil || left != nil && !memoryOf(annotated(*left), entry).empty() {
			t.Fatalf("left: %v %v", left, err)
		}
	})
}

func TestAFingerprintIsOfAllButOurOwnDoing(t *testing.T) {
	before := annotated("a")
	before.SetLabels(map[string]string{"a": "b"})
	first := fingerprint(before)
	for name, c := range map[string]struct {
		change func(*unstructured.Unstructured)
		same   bool
	}{
		"what we remember": {func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{Annotation: "b"}) }, true},
		"that we remember": {func(o *unstructured.Unstructured) { o.SetAnnotations(nil) }, true},
		"who wrote what":   {func(o *unstructured.Unstructured) { o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "x"}}) }, true},
		"its version":      {func(o *unstructured.Unstructured) { o.SetResourceVersion("9") }, true},
		"an annotation":    {func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{"theirs": ""}) }, false},
		"a label":          {func(o *unstructured.Unstructured) { o.SetLabels(nil) }, false},
		"a finalizer":      {func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"x"}) }, false},
		"a field":          {func(o *unstructured.Unstructured) { o.Object["data"] = map[string]any{"a": "b"} }, false},
		"nothing":          {func(*unstructured.Unstructured) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := before.DeepCopy()
			c.change(o)
			was := o.DeepCopy()
			if same := fingerprint(o) == first; same != c.same {
				t.Errorf("the same: %t", same)
			}
			if diff := cmp.Diff(was, o); diff != "" {
				t.Errorf("it was changed: %s", diff)
			}
		})
	}
}
