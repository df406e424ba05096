package finalize

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/statekey"
)

// testKeys are the operator's.
var testKeys, _ = statekey.Parse(map[string][]byte{statekey.Current: bytes.Repeat([]byte{1}, statekey.MinBytes)})

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
		"of a wrong type":      `{"uid": "mine", "by": {"example.com/f": {"attempt": "3"}}}`,
		"not signed":           `{"uid": "mine", "by": {"example.com/f": {"attempt": 3, "state": {"deleted": true}}}}`,
		"signed with nothing":  `{"uid": "mine", "by": {"example.com/f": {"signature": "", "data": {"attempt": 3}}}}`,
		"signed as a document": `{"uid": "mine", "by": {"example.com/f": "signature"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if m, err := memoryOf(annotated(text), entry, testKeys); !m.empty() || err != nil {
				t.Errorf("remembered: %+v, %v", m, err)
			}
		})
	}
}

// A signature is of one object, one finalizer and one memory.
func TestMemory_CanNotBeForgedNorMovedElsewhere(t *testing.T) {
	n := notebook{UID: "mine", By: map[string]json.RawMessage{}}
	text, err := n.with(entry, memory{Attempt: 1, State: json.RawMessage(`{"step":"one"}`)}, testKeys)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := memoryOf(annotated(*text), entry, testKeys); err != nil || string(m.State) != `{"step":"one"}` {
		t.Fatalf("as it was written it is %+v, %v", m, err)
	}
	other, err := statekey.Parse(map[string][]byte{statekey.Current: bytes.Repeat([]byte{9}, statekey.MinBytes)})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text string
		keys statekey.Keys
		uid  types.UID
	}{
		"another state":             {text: strings.Replace(*text, "one", "two", 1), keys: testKeys, uid: "mine"},
		"copied to another object":  {text: strings.Replace(*text, `"uid":"mine"`, `"uid":"other"`, 1), keys: testKeys, uid: "other"},
		"moved to its finalizer":    {text: strings.Replace(*text, entry, "example.com/g", 1), keys: testKeys, uid: "mine"},
		"signed with another key":   {text: *text, keys: other, uid: "mine"},
		"there is no key to verify": {text: *text, uid: "mine"},
	} {
		o := annotated(c.text)
		o.SetUID(c.uid)
		for _, of := range []string{entry, "example.com/g"} {
			if m, _ := memoryOf(o, of, c.keys); !m.empty() {
				t.Errorf("%s: it counts for %s: %+v", name, of, m)
			}
		}
	}
}

func TestFinalizersShareTheNotebookOfAnObject(t *testing.T) {
	o := annotated("garbage")
	write := func(entry string, m memory) {
		text, err := notebookOf(o).with(entry, m, testKeys)
		if err != nil {
			t.Fatal(err)
		}
		o.SetAnnotations(nil)
		if text != nil {
			o.SetAnnotations(map[string]string{Annotation: *text})
		}
	}
	of := func(entry string) memory {
		m, err := memoryOf(o, entry, testKeys)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	a, b := memory{Attempt: 1, State: json.RawMessage(`1`)}, memory{Attempt: 2, Failed: "x", Of: "y"}
	write("a", a)
	write("b", b)
	if diff := cmp.Diff([]memory{a, b}, []memory{of("a"), of("b")}); diff != "" {
		t.Error(diff)
	}
	write("a", memory{})
	if diff := cmp.Diff([]memory{{}, b}, []memory{of("a"), of("b")}); diff != "" {
		t.Error(diff)
	}
	write("b", memory{})
	if got := o.GetAnnotations(); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

// Whoever may write the object may write anything there.
func FuzzNotebook(f *testing.F) {
	signed := memory{Attempt: 3, State: json.RawMessage(`{"a":[1]}`)}
	valid, err := notebook{UID: "mine", By: map[string]json.RawMessage{}}.with("other", memory{Attempt: 1}, testKeys)
	if err == nil {
		valid, err = notebookOf(annotated(*valid)).with(entry, signed, testKeys)
	}
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		"", "{}", `{"uid":"mine","by":{}}`, `{"uid":"mine","by":{"example.com/f":{"attempt":9223372036854775807,"state":null}}}`,
		`{"uid":"mine","by":{"example.com/f":{"attempt":-1,"state":{"a":[1]},"failed":"x","of":"y"},"other":{"state":1}}}`,
		`{"UID":"mine","By":{"\u0000":{}}}`, `{"uid":"another","by":{"example.com/f":{"state":1}}}`, *valid,
		strings.Replace(*valid, "data", "DATA", 1), strings.Replace(*valid, `"attempt":3`, `"attempt":4`, 1),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o := annotated(text)
		if m, err := memoryOf(o, entry, testKeys); !m.empty() && (err != nil || !cmp.Equal(m, signed)) {
			t.Fatalf("what was never signed counts: %+v, %v", m, err)
		}
		written, err := notebookOf(o).with(entry, memory{Attempt: 7, State: json.RawMessage(`{"a":1}`)}, testKeys)
		if err != nil || written == nil {
			t.Fatalf("with: %v %v", written, err)
		}
		again := annotated(*written)
		if got, err := memoryOf(again, entry, testKeys); err != nil || got.Attempt != 7 || !bytes.Equal(got.State, []byte(`{"a":1}`)) || got.Failed != "" {
			t.Fatalf("remembered %+v of %s: %v", got, *written, err)
		}
		left, err := notebookOf(again).with(entry, memory{}, statekey.Keys{})
		if err != nil {
			t.Fatal(err)
		}
		if left == nil {
			return
		}
		if m, _ := memoryOf(annotated(*left), entry, testKeys); !m.empty() {
			t.Fatalf("left: %+v", m)
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
