package loop

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gleaner-dev/gleaner/operator/finalize"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/modules"
	"github.com/gleaner-dev/gleaner/policies"
)

// deleting is what the API server asks when the other collector deletes a ConfigMap.
const deleting = `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
  "uid": "1", "operation": "DELETE", "kind": {"group": "", "version": "v1", "kind": "KIND"}, "dryRun": DRYRUN,
  "oldObject": {"apiVersion": "v1", "kind": "KIND", "metadata": {"namespace": "shop", "name": "a", "uid": "u-a", "resourceVersion": "7"}},
  "options": {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "propagationPolicy": "Background"}}}`

// review asks the webhook, and returns the answer as it is sent.
func review(t *testing.T, l *Loop, kind, dryRun string) string {
	t.Helper()
	body := strings.NewReplacer("KIND", kind, "DRYRUN", dryRun).Replace(deleting)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, modules.VetoPath, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	l.Vetoes().ServeHTTP(w, r)
	return w.Body.String()
}

// counted is how many decisions of a kind the metric has counted.
func counted(t *testing.T, l *Loop, action, reason, result, kind string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(l.metrics.decisions)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
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

func TestARefusalOfWhatIsNotKnownYetIsRecorded(t *testing.T) {
	for claim, c := range map[string]struct {
		kind string
		set  *policies.Set
		why  string
	}{
		"policies that have not been read": {"ConfigMap", nil, "the policies have not been read yet"},
		"a kind that is not discovered":    {"Thing", policies.NewSet(nil), "objects of this kind are not known yet"},
	} {
		t.Run(claim, func(t *testing.T) {
			l := newWorld(t).loop
			l.rehearsed = func() *policies.Set { return c.set }
			for range 2 { // the other collector comes again
				if said := review(t, l, c.kind, "false"); !strings.Contains(said, `"allowed":false`) || !strings.Contains(said, c.why) {
					t.Fatalf("it is not refused for what is not known, but answered %s", said)
				}
			}
			entries := l.records.Entries("")
			if len(entries) != 1 || entries[0].Reason != "RefusedForNow" || entries[0].Because != c.why || entries[0].Object.Name != "a" {
				t.Errorf("recorded are %+v", entries)
			}
			if n := counted(t, l, "None", "RefusedForNow", "", c.kind); n != 2 {
				t.Errorf("%v decisions are counted", n)
			}
		})
	}
}

func TestARefusalOfADryRunIsNotRecorded(t *testing.T) {
	l := newWorld(t).loop
	l.rehearsed = func() *policies.Set { return nil }
	if said := review(t, l, "ConfigMap", "true"); !strings.Contains(said, `"allowed":false`) {
		t.Fatalf("answered %s", said)
	}
	if entries := l.records.Entries(""); len(entries) != 0 {
		t.Errorf("recorded are %+v", entries)
	}
}

func TestDecisionsOnFinalizersAreCountedWithTheOthers(t *testing.T) {
	l := newWorld(t).loop
	note := finalize.Note{
		Object: graph.Object{Kind: configMap, Name: "a", UID: "u-a"}, Reason: finalize.Done, Taken: true,
		Finalizer: &policies.Finalizer{Policy: &policies.Policy{Kind: "ClusterFinalizer", Name: "f"}, Entry: "example.com/f"},
	}
	l.noteFinalizer(note)
	note.Reason, note.Taken = finalize.Waits, false
	l.noteFinalizer(note)
	for reason, action := range map[string][2]string{"FinalizerDone": {"RemoveFinalizer", "Done"}, "FinalizerWaits": {"None", ""}} {
		if n := counted(t, l, action[0], reason, action[1], "ConfigMap"); n != 1 {
			t.Errorf("%s is counted %v times", reason, n)
		}
	}
}
