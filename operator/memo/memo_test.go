package memo_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/memo"
)

var (
	created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	noticed = created.Add(time.Hour)
	now     = noticed.Add(time.Hour)
)

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
	got, counts := memo.Of(carrying(want.String()), now)
	if diff := cmp.Diff(want, got); diff != "" || !counts {
		t.Error(counts, diff)
	}
	if !got.OwnerlessSince.Equal(noticed) {
		t.Errorf("since %s", got.OwnerlessSince)
	}
}

// A policy may wait with its answer on dependents, and remember something meanwhile.
func TestWhatIsRememberedOfADeletionNeedsNoTime(t *testing.T) {
	deleted := metav1.NewTime(noticed)
	want := memo.New(object().UID, object().OwnerReferences, time.Time{})
	want.OwnerlessSince, want.State, want.Policy = time.Time{}, []byte(`{"asked":1}`), "ClusterGCPolicy a"
	o := carrying(want.String())
	o.DeletionTimestamp = &deleted
	got, counts := memo.Of(o, now)
	if diff := cmp.Diff(want, got); diff != "" || !counts {
		t.Error(counts, diff)
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
			o.Annotations = map[string]string{memo.Annotation: m.String()}
			if got, counts := memo.Of(o, now); counts || !cmp.Equal(got, memo.Memo{}) {
				t.Errorf("it counts: %+v", got)
			}
		})
	}
	for _, text := range []string{"", "{}", "nonsense", "[1]", `{"uid": 5}`} {
		if _, counts := memo.Of(carrying(text), now); counts {
			t.Errorf("%q counts", text)
		}
	}
	if _, counts := memo.Of(object(), now); counts {
		t.Error("none counts")
	}
}
