package collector_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/finalizers"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
)

// deleting is what the API server asks when the other collector deletes a ConfigMap.
const deleting = `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
  "uid": "1", "operation": "DELETE", "kind": {"group": "", "version": "v1", "kind": "KIND"}, "dryRun": DRYRUN,
  "oldObject": {"apiVersion": "v1", "kind": "KIND", "metadata": {"namespace": "shop", "name": "a", "uid": "u-a", "resourceVersion": "7"}},
  "options": {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "propagationPolicy": "Background"}}}`

// review asks the webhook, and returns the answer as it is sent.
func (w *world) review(kind, dryRun string) string {
	w.t.Helper()
	body := strings.NewReplacer("KIND", kind, "DRYRUN", dryRun).Replace(deleting)
	r := httptest.NewRequestWithContext(w.t.Context(), http.MethodPost, companion.VetoPath, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	w.reviewer().ServeHTTP(answer, r)
	return answer.Body.String()
}

// counted is how many decisions of a kind the metric has counted.
func (w *world) counted(action, reason, result, kind string) float64 {
	w.t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w.recorder)
	families, err := registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	want := map[string]string{"action": action, "reason": reason, "result": result, "group": "", "kind": kind}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if maps.Equal(labels, want) {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func TestReview_RecordsDeferredDeletions(t *testing.T) {
	for claim, c := range map[string]struct {
		kind string
		set  *policies.Set
		why  string
	}{
		"policies that have not been read": {"ConfigMap", nil, "the policies have not been read yet"},
		"a kind that is not discovered":    {"Thing", policies.NewSet(nil), "objects of this kind are not known yet"},
	} {
		t.Run(claim, func(t *testing.T) {
			w := newWorld(t)
			w.policySet = func() *policies.Set { return c.set }
			for range 2 { // the other collector comes again
				if said := w.review(c.kind, "false"); !strings.Contains(said, `"allowed":false`) || !strings.Contains(said, c.why) {
					t.Fatalf("it is not refused for what is not known, but answered %s", said)
				}
			}
			entries := w.records.Entries("")
			if len(entries) != 1 || entries[0].Reason != "DeletionDeferred" || entries[0].Message != c.why || entries[0].Object.Name != "a" {
				t.Errorf("recorded are %+v", entries)
			}
			if n := w.counted("None", "DeletionDeferred", "", c.kind); n != 2 {
				t.Errorf("%v decisions are counted", n)
			}
		})
	}
}

func TestReview_OfADryRunIsNotRecorded(t *testing.T) {
	w := newWorld(t)
	w.policySet = func() *policies.Set { return nil }
	if said := w.review("ConfigMap", "true"); !strings.Contains(said, `"allowed":false`) {
		t.Fatalf("answered %s", said)
	}
	if entries := w.records.Entries(""); len(entries) != 0 {
		t.Errorf("recorded are %+v", entries)
	}
}

func TestRecorder_CountsDecisionsAboutFinalizers(t *testing.T) {
	w := newWorld(t)
	note := finalizers.Outcome{
		Object: graph.Object{Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Name: "a", UID: "u-a"}, Reason: finalizers.Done, Removed: true,
		Finalizer: &policies.Finalizer{Policy: &policies.Policy{Kind: "ClusterFinalizer", Name: "f"}, Entry: "example.com/f"},
	}
	w.recorder.RecordFinalizer(note)
	note.Reason, note.Removed = finalizers.Waiting, false
	w.recorder.RecordFinalizer(note)
	for reason, action := range map[string][2]string{"FinalizerDone": {"RemoveFinalizer", "Done"}, "FinalizerWaiting": {"None", ""}} {
		if n := w.counted(action[0], reason, action[1], "ConfigMap"); n != 1 {
			t.Errorf("%s is counted %v times", reason, n)
		}
	}
}
