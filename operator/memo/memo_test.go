package memo_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/memo"
	"github.com/gleaner-dev/gleaner/operator/statekey"
)

var (
	created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	noticed = created.Add(time.Hour)
	now     = noticed.Add(time.Hour)
)

// keys are the operator's.
var keys, _ = statekey.Parse(map[string][]byte{statekey.Current: bytes.Repeat([]byte{1}, statekey.MinBytes)})

// sign is what the operator would write.
func sign(t testing.TB, m memo.Memo) string {
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

func carrying(text string) *metav1.ObjectMeta {
	o := object()
	o.Annotations = map[string]string{memo.Annotation: text}
	return o
}

func TestWhatIsRememberedIsFoundAgain(t *testing.T) {
	want := memo.New(object().UID, object().OwnerReferences, noticed)
	want.Attempt, want.State, want.Policy = 2, []byte(`{"a":1}`), "ClusterGCPolicy a"
	got, status := memo.Read(carrying(sign(t, want)), now, keys)
	if diff := cmp.Diff(want, got); diff != "" || status != memo.Valid {
		t.Error(status, diff)
	}
	if !got.OwnerlessSince.Equal(noticed) {
		t.Errorf("since %s", got.OwnerlessSince)
	}
}

func TestWhatIsRememberedOfADeletionNeedsNoTime(t *testing.T) {
	o, want := object(), memo.New(object().UID, object().OwnerReferences, noticed)
	want.OwnerlessSince, want.State = time.Time{}, []byte(`{"asked":true}`)
	o.Annotations, o.DeletionTimestamp = map[string]string{memo.Annotation: sign(t, want)}, &metav1.Time{Time: noticed}
	got, status := memo.Read(o, now, keys)
	if diff := cmp.Diff(want, got); diff != "" || status != memo.Valid {
		t.Error(status, diff)
	}
}

func TestAMemoThatTravelledSaysNothing(t *testing.T) {
	good := memo.New(object().UID, object().OwnerReferences, noticed)
	for claim, change := range map[string]func(*metav1.ObjectMeta, *memo.Memo){
		"copied to another object":                 func(o *metav1.ObjectMeta, _ *memo.Memo) { o.UID = "another" },
		"restored with another UID":                func(_ *metav1.ObjectMeta, m *memo.Memo) { m.UID = "former" },
		"about references that have changed since": func(o *metav1.ObjectMeta, _ *memo.Memo) { o.OwnerReferences[0].UID = types.UID("other") },
		"about more references":                    func(o *metav1.ObjectMeta, _ *memo.Memo) { o.OwnerReferences = nil },
		"of the future":                            func(_ *metav1.ObjectMeta, m *memo.Memo) { m.OwnerlessSince = now.Add(time.Second) },
		"of before the object was there":           func(_ *metav1.ObjectMeta, m *memo.Memo) { m.OwnerlessSince = created.Add(-time.Second) },
		"of no time":                               func(_ *metav1.ObjectMeta, m *memo.Memo) { m.OwnerlessSince = time.Time{} },
	} {
		t.Run(claim, func(t *testing.T) {
			o, m := object(), good
			change(o, &m)
			o.Annotations = map[string]string{memo.Annotation: sign(t, m)}
			if got, status := memo.Read(o, now, keys); status != memo.Invalid || !cmp.Equal(got, memo.Memo{}) {
				t.Errorf("it counts: %+v", got)
			}
		})
	}
	for _, text := range []string{"", "{}", "nonsense", "[1]", `{"uid": 5}`, `{"signature": "00", "data": 5}`} {
		if _, status := memo.Read(carrying(text), now, keys); status != memo.Invalid {
			t.Errorf("%q counts", text)
		}
	}
	if _, status := memo.Read(object(), now, keys); status != memo.Missing {
		t.Error("none counts")
	}
}

// Whoever may update the object may write what the operator would, but for the
// signature.
func TestMemo_ThatTheOperatorDidNotSignSaysNothing(t *testing.T) {
	m := memo.New(object().UID, object().OwnerReferences, noticed)
	forged := m
	forged.OwnerlessSince = created
	signed := sign(t, m)
	for claim, c := range map[string]struct {
		text string
		want memo.Status
	}{
		"not signed, as it was before memos were": {forged.String(), memo.Invalid},
		"with an empty signature":                 {`{"signature":"","data":` + forged.String() + `}`, memo.Invalid},
		"with the signature of another memo":      {strings.Replace(signed, m.String(), forged.String(), 1), memo.Unverified},
		"with an invented signature":              {`{"signature":"` + strings.Repeat("0", 64) + `","data":` + forged.String() + `}`, memo.Unverified},
	} {
		if got, status := memo.Read(carrying(c.text), now, keys); status != c.want || !cmp.Equal(got, memo.Memo{}) {
			t.Errorf("%s: it counts: %d, %+v", claim, status, got)
		}
	}
	if got, status := memo.Read(carrying(signed), now, statekey.Keys{}); status != memo.Unverified || !cmp.Equal(got, memo.Memo{}) {
		t.Errorf("without keys it counts: %d, %+v", status, got)
	}
}

// FuzzRead: nothing panics, and nothing counts that has not been signed.
func FuzzRead(f *testing.F) {
	m := memo.New(object().UID, object().OwnerReferences, noticed)
	m.State, m.Policy = []byte(`{"a":[1]}`), "ClusterGCPolicy a"
	valid := sign(f, m)
	for _, seed := range []string{"", "{}", "null", "[]", m.String(), valid, strings.ToUpper(valid), strings.Replace(valid, "data", "Data", 1), `{"signature":"00","data":null}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, status := memo.Read(carrying(text), now, keys)
		if status != memo.Valid {
			if !cmp.Equal(got, memo.Memo{}) {
				t.Fatalf("status %d, and remembered %+v", status, got)
			}
			return
		}
		if diff := cmp.Diff(m, got); diff != "" {
			t.Fatalf("%q counts, and was never signed: %s", text, diff)
		}
	})
}
