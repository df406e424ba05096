package objectstate_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/statekey"
)

var (
	created           = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ownersAbsentSince = created.Add(time.Hour)
	now               = ownersAbsentSince.Add(time.Hour)
)

// keys are the keys of the operator.
var keys, _ = statekey.Parse(map[string][]byte{statekey.Current: bytes.Repeat([]byte{1}, statekey.MinBytes)})

// sign returns the annotation that the operator would write.
func sign(t testing.TB, m objectstate.State) string {
	t.Helper()
	text, err := m.Sign(keys)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func object() *metav1.ObjectMeta {
	return &metav1.ObjectMeta{
		Name: "a", UID: "uid", CreationTimestamp: metav1.NewTime(created),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "gone"}},
	}
}

func withAnnotation(text string) *metav1.ObjectMeta {
	o := object()
	o.Annotations = map[string]string{objectstate.Annotation: text}
	return o
}

func TestRead_ReturnsSignedState(t *testing.T) {
	want := objectstate.New(object().UID, object().OwnerReferences, ownersAbsentSince)
	want.Attempt, want.ModuleState, want.Policy = 2, []byte(`{"a":1}`), "ClusterGCPolicy a"
	got, status := objectstate.Read(withAnnotation(sign(t, want)), now, keys)
	if diff := cmp.Diff(want, got); diff != "" || status != objectstate.Valid {
		t.Error(status, diff)
	}
	if !got.OwnersAbsentSince.Equal(ownersAbsentSince) {
		t.Errorf("since %s", got.OwnersAbsentSince)
	}
}

func TestRead_AcceptsStateOfADeletionWithoutTime(t *testing.T) {
	o, want := object(), objectstate.New(object().UID, object().OwnerReferences, ownersAbsentSince)
	want.OwnersAbsentSince, want.ModuleState = time.Time{}, []byte(`{"asked":true}`)
	o.Annotations, o.DeletionTimestamp = map[string]string{objectstate.Annotation: sign(t, want)}, &metav1.Time{Time: ownersAbsentSince}
	got, status := objectstate.Read(o, now, keys)
	if diff := cmp.Diff(want, got); diff != "" || status != objectstate.Valid {
		t.Error(status, diff)
	}
}

func TestRead_IgnoresStateOfAnotherObject(t *testing.T) {
	good := objectstate.New(object().UID, object().OwnerReferences, ownersAbsentSince)
	for claim, change := range map[string]func(*metav1.ObjectMeta, *objectstate.State){
		"copied to another object":      func(o *metav1.ObjectMeta, _ *objectstate.State) { o.UID = "another" },
		"restored with another UID":     func(_ *metav1.ObjectMeta, m *objectstate.State) { m.UID = "former" },
		"other owner references":        func(o *metav1.ObjectMeta, _ *objectstate.State) { o.OwnerReferences[0].UID = types.UID("other") },
		"more owner references":         func(o *metav1.ObjectMeta, _ *objectstate.State) { o.OwnerReferences = nil },
		"in the future":                 func(_ *metav1.ObjectMeta, m *objectstate.State) { m.OwnersAbsentSince = now.Add(time.Second) },
		"before the object was created": func(_ *metav1.ObjectMeta, m *objectstate.State) { m.OwnersAbsentSince = created.Add(-time.Second) },
		"without a time":                func(_ *metav1.ObjectMeta, m *objectstate.State) { m.OwnersAbsentSince = time.Time{} },
	} {
		t.Run(claim, func(t *testing.T) {
			o, m := object(), good
			change(o, &m)
			o.Annotations = map[string]string{objectstate.Annotation: sign(t, m)}
			if got, status := objectstate.Read(o, now, keys); status != objectstate.Invalid || !cmp.Equal(got, objectstate.State{}) {
				t.Errorf("it is accepted: %+v", got)
			}
		})
	}
	for _, text := range []string{"", "{}", "nonsense", "[1]", `{"uid": 5}`, `{"signature": "00", "data": 5}`} {
		if _, status := objectstate.Read(withAnnotation(text), now, keys); status != objectstate.Invalid {
			t.Errorf("%q is accepted", text)
		}
	}
	if _, status := objectstate.Read(object(), now, keys); status != objectstate.Missing {
		t.Error("a missing annotation is accepted")
	}
}

// Any client that may update the object may write the state, but not the signature.
func TestRead_IgnoresUnsignedState(t *testing.T) {
	m := objectstate.New(object().UID, object().OwnerReferences, ownersAbsentSince)
	forged := m
	forged.OwnersAbsentSince = created
	signed := sign(t, m)
	for claim, c := range map[string]struct {
		text string
		want objectstate.Status
	}{
		"not signed, as in earlier versions": {forged.String(), objectstate.Invalid},
		"with an empty signature":            {`{"signature":"","data":` + forged.String() + `}`, objectstate.Invalid},
		"with the signature of other state":  {strings.Replace(signed, m.String(), forged.String(), 1), objectstate.Unverified},
		"with an invented signature":         {`{"signature":"` + strings.Repeat("0", 64) + `","data":` + forged.String() + `}`, objectstate.Unverified},
	} {
		if got, status := objectstate.Read(withAnnotation(c.text), now, keys); status != c.want || !cmp.Equal(got, objectstate.State{}) {
			t.Errorf("%s: accepted: %d, %+v", claim, status, got)
		}
	}
	if got, status := objectstate.Read(withAnnotation(signed), now, statekey.Keys{}); status != objectstate.Unverified || !cmp.Equal(got, objectstate.State{}) {
		t.Errorf("accepted without keys: %d, %+v", status, got)
	}
}

// FuzzRead: nothing panics, and only signed state is accepted.
func FuzzRead(f *testing.F) {
	m := objectstate.New(object().UID, object().OwnerReferences, ownersAbsentSince)
	m.ModuleState, m.Policy = []byte(`{"a":[1]}`), "ClusterGCPolicy a"
	valid := sign(f, m)
	for _, seed := range []string{"", "{}", "null", "[]", m.String(), valid, strings.ToUpper(valid), strings.Replace(valid, "data", "Data", 1), `{"signature":"00","data":null}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, status := objectstate.Read(withAnnotation(text), now, keys)
		if status != objectstate.Valid {
			if !cmp.Equal(got, objectstate.State{}) {
				t.Fatalf("status %d, with state %+v", status, got)
			}
			return
		}
		if diff := cmp.Diff(m, got); diff != "" {
			t.Fatalf("%q is accepted, but was never signed: %s", text, diff)
		}
	})
}
