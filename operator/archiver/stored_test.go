package archiver_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

// A write that fails, or has to wait, is made again.
func TestDelete_ThatIsRepeatedHasOneEntryForEachState(t *testing.T) {
	w := newWorld(t, policy("keep", nil, "configmaps"))
	o := w.given("ConfigMap", "a")
	cause := writer.Cause{Reason: "OwnersAbsent", Owner: "owner"}
	for range 3 {
		if sent, _, err := w.delete(o, cause); !sent || err != nil {
			t.Fatal(sent, err)
		}
	}
	expect := func(n int, claim string) {
		t.Helper()
		if list := w.headers(archive.Query{UID: "a"}); len(list) != n || w.Stats("keep").Archived != int64(n) {
			t.Errorf("%s: %d entries, counted are %+v; want %d", claim, len(list), w.Stats("keep"), n)
		}
	}
	expect(1, "repeated")
	changed := w.given("ConfigMap", "a", func(u *unstructured.Unstructured) { u.SetResourceVersion("8") })
	_, _, _ = w.delete(changed, cause)
	expect(2, "it has changed")
	_, _, _ = w.delete(changed, writer.Cause{Reason: "Expired"})
	expect(3, "for another cause")
	later := policy("keep", func(s *v1alpha1.ArchivePolicySpec) { s.TTL = &metav1.Duration{Duration: time.Hour} }, "configmaps")
	later.SetGeneration(2)
	w.snapshot = newWorld(t, later).snapshot
	_, _, _ = w.delete(changed, writer.Cause{Reason: "Expired"})
	expect(4, "the policy has changed")
	w.now = time.Now().Add(15 * time.Second) // of a TTL of a minute, most is left
	_, _, _ = w.delete(changed, writer.Cause{Reason: "Expired"})
	expect(5, "after 15 seconds")
}
