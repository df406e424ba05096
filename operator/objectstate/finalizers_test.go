package objectstate_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/statekey"
)

const entry = "example.com/f"

func annotated(text string) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Name: "o", Namespace: "ns", UID: "mine", Annotations: map[string]string{objectstate.FinalizersAnnotation: text}}
}

func TestReadFinalizer_IgnoresInvalidAnnotation(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "not JSON": "{", "a list": "[]", "null": "null", "no UID": `{"by": {"example.com/f": {"attempt": 3}}}`,
		"another object's": `{"uid": "another", "by": {"example.com/f": {"failed": "x"}}}`, "no entries": `{"uid": "mine", "by": null}`,
		"of a wrong type":      `{"uid": "mine", "by": {"example.com/f": {"attempt": "3"}}}`,
		"not signed":           `{"uid": "mine", "by": {"example.com/f": {"attempt": 3, "state": {"deleted": true}}}}`,
		"signed with nothing":  `{"uid": "mine", "by": {"example.com/f": {"signature": "", "data": {"attempt": 3}}}}`,
		"signed as a document": `{"uid": "mine", "by": {"example.com/f": "signature"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if m, err := objectstate.ReadFinalizer(annotated(text), entry, keys); !m.Empty() || err != nil {
				t.Errorf("state: %+v, %v", m, err)
			}
		})
	}
}

// A signature is valid for one object, one finalizer and one state.
func TestFinalizerState_CanNotBeForgedOrMoved(t *testing.T) {
	n := objectstate.FinalizerStates{UID: "mine", Entries: map[string]json.RawMessage{}}
	text, err := n.With(entry, objectstate.FinalizerState{Attempt: 1, State: json.RawMessage(`{"step":"one"}`)}, keys)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := objectstate.ReadFinalizer(annotated(*text), entry, keys); err != nil || string(m.State) != `{"step":"one"}` {
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
		"another state":            {text: strings.Replace(*text, "one", "two", 1), keys: keys, uid: "mine"},
		"copied to another object": {text: strings.Replace(*text, `"uid":"mine"`, `"uid":"other"`, 1), keys: keys, uid: "other"},
		"moved to its finalizer":   {text: strings.Replace(*text, entry, "example.com/g", 1), keys: keys, uid: "mine"},
		"signed with another key":  {text: *text, keys: other, uid: "mine"},
		"no key to verify":         {text: *text, uid: "mine"},
	} {
		o := annotated(c.text)
		o.SetUID(c.uid)
		for _, of := range []string{entry, "example.com/g"} {
			if m, _ := objectstate.ReadFinalizer(o, of, c.keys); !m.Empty() {
				t.Errorf("%s: accepted for %s: %+v", name, of, m)
			}
		}
	}
}

func TestFinalizerStates_AreIndependent(t *testing.T) {
	o := annotated("garbage")
	write := func(entry string, m objectstate.FinalizerState) {
		text, err := objectstate.ReadFinalizers(o).With(entry, m, keys)
		if err != nil {
			t.Fatal(err)
		}
		o.SetAnnotations(nil)
		if text != nil {
			o.SetAnnotations(map[string]string{objectstate.FinalizersAnnotation: *text})
		}
	}
	of := func(entry string) objectstate.FinalizerState {
		m, err := objectstate.ReadFinalizer(o, entry, keys)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	a, b := objectstate.FinalizerState{Attempt: 1, State: json.RawMessage(`1`)}, objectstate.FinalizerState{Attempt: 2, Failed: "x", FailedInput: "y"}
	write("a", a)
	write("b", b)
	if diff := cmp.Diff([]objectstate.FinalizerState{a, b}, []objectstate.FinalizerState{of("a"), of("b")}); diff != "" {
		t.Error(diff)
	}
	write("a", objectstate.FinalizerState{})
	if diff := cmp.Diff([]objectstate.FinalizerState{{}, b}, []objectstate.FinalizerState{of("a"), of("b")}); diff != "" {
		t.Error(diff)
	}
	write("b", objectstate.FinalizerState{})
	if got := o.GetAnnotations(); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

// Everyone who may write the object may write any annotation.
func FuzzReadFinalizers(f *testing.F) {
	signed := objectstate.FinalizerState{Attempt: 3, State: json.RawMessage(`{"a":[1]}`)}
	valid, err := objectstate.FinalizerStates{UID: "mine", Entries: map[string]json.RawMessage{}}.With("other", objectstate.FinalizerState{Attempt: 1}, keys)
	if err == nil {
		valid, err = objectstate.ReadFinalizers(annotated(*valid)).With(entry, signed, keys)
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
		if m, err := objectstate.ReadFinalizer(o, entry, keys); !m.Empty() && (err != nil || !cmp.Equal(m, signed)) {
			t.Fatalf("unsigned state is accepted: %+v, %v", m, err)
		}
		written, err := objectstate.ReadFinalizers(o).With(entry, objectstate.FinalizerState{Attempt: 7, State: json.RawMessage(`{"a":1}`)}, keys)
		if err != nil || written == nil {
			t.Fatalf("with: %v %v", written, err)
		}
		again := annotated(*written)
		if got, err := objectstate.ReadFinalizer(again, entry, keys); err != nil || got.Attempt != 7 || !bytes.Equal(got.State, []byte(`{"a":1}`)) || got.Failed != "" {
			t.Fatalf("state %+v in %s: %v", got, *written, err)
		}
		remaining, err := objectstate.ReadFinalizers(again).With(entry, objectstate.FinalizerState{}, statekey.Keys{})
		if err != nil {
			t.Fatal(err)
		}
		if remaining == nil {
			return
		}
		if m, _ := objectstate.ReadFinalizer(annotated(*remaining), entry, keys); !m.Empty() {
			t.Fatalf("left: %+v", m)
		}
	})
}

func TestRemoveFinalizers_KeepsStateOfOthers(t *testing.T) {
	match := func(finalizer string) bool { return finalizer == "a" }
	for claim, c := range map[string]struct {
		text string
		want *string
	}{
		"two entries, one removed": {`{"uid":"u","by":{"a":{},"b":{"n":1}}}`, new(`{"uid":"u","by":{"b":{"n":1}}}`)},
		"one entry, removed":       {`{"uid":"u","by":{"a":{}}}`, nil},
		"invalid annotation":       {`no JSON`, nil},
	} {
		t.Run(claim, func(t *testing.T) {
			if diff := cmp.Diff(c.want, objectstate.RemoveFinalizers(c.text, match)); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFinalizerFailure_IsForThisObjectOnly(t *testing.T) {
	text, err := objectstate.ReadFinalizers(annotated("")).With(entry, objectstate.FinalizerState{Attempt: 1, Failed: "no"}, keys)
	if err != nil {
		t.Fatal(err)
	}
	o := annotated(*text)
	if got := objectstate.FinalizerFailure(o, entry); got != "no" {
		t.Errorf("got %q", got)
	}
	if got := objectstate.FinalizerFailure(o, "example.com/g"); got != "" {
		t.Errorf("another finalizer: got %q", got)
	}
	o.UID = "other"
	if got := objectstate.FinalizerFailure(o, entry); got != "" {
		t.Errorf("another object: got %q", got)
	}
}
