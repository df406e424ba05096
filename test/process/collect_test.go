package process

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/record"
)

func TestRun_IsReadyOnceSyncedAndCollects(t *testing.T) {
	w := newEnv(t, devtest.Shared(t))
	g := startReady(t, devtest.Shared(t))
	if got := g.get("/debug/gc/synced"); got.code != http.StatusOK || strings.TrimSpace(got.body) != "ok" {
		t.Errorf("process is ready, but /debug/gc/synced returns %d: %s", got.code, got.body)
	}
	w.waitForDeletion(w.createOrphan("dependent"))
}

func TestRun_CreatesAndDeletesACanary(t *testing.T) {
	w := newEnv(t, devtest.Shared(t))
	g := startReady(t, devtest.Shared(t), "--canary-timeout=1s", "--namespace="+w.ns)
	dependent := w.createOrphan("dependent")
	w.waitForDeletion(dependent)
	for name := range w.listNames() {
		if strings.HasPrefix(name, "gleaner-canary-") {
			t.Errorf("canary %s remains", name)
		}
	}
	for _, line := range g.decisionLines("") {
		if strings.Contains(fmt.Sprint(line["object"]), "/gleaner-canary-") {
			t.Errorf("decision about the operator's own canary: %v", line)
		}
	}
}

func TestRun_NeedsNoCustomResources(t *testing.T) {
	cluster := devtest.Shared(t)
	w := newEnv(t, cluster)
	groups, err := w.kube.Discovery().ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return strings.Contains(g.Name, "gleaner") }) {
		t.Fatal("the CustomResourceDefinitions exist, so the test proves nothing")
	}
	g := startReady(t, cluster)
	w.waitForDeletion(w.createOrphan("dependent"))
	for _, line := range g.process.Log.Lines() {
		if strings.Contains(line, `"level":"error"`) {
			t.Errorf("unexpected log line: %s", line)
		}
	}
}

func TestMetrics_CountObjectsAndDecisions(t *testing.T) {
	w := newEnv(t, devtest.Shared(t))
	g := startReady(t, devtest.Shared(t))
	dependent := w.createOrphan("dependent")
	w.waitForDeletion(dependent)
	devtest.Eventually(t, timeout, func() error { // the record follows the write
		if len(g.records(dependent.UID)) == 0 {
			return errors.New("no record")
		}
		return nil
	})
	for _, tc := range []struct {
		name   string
		labels []string
		least  float64
	}{
		{"gleaner_graph_objects", []string{`state="seen"`}, 1},
		{"gleaner_graph_objects", []string{`state="named"`}, 0},
		{"gleaner_graph_objects", []string{`state="gone"`}, 0},
		{"gleaner_graph_edges", nil, 0},
		{"gleaner_decisions_total", []string{`action="Delete"`, `reason="OwnersAbsent"`, `result="Done"`, `group=""`, `kind="ConfigMap"`}, 1},
		{"gleaner_api_calls_total", []string{`verb="delete"`, `code="200"`}, 1},
		{"gleaner_api_calls_total", []string{`verb="watch"`, `code="200"`}, 10},
		{"gleaner_resource_synced", []string{`group=""`, `version="v1"`, `resource="configmaps"`}, 1},
		{"gleaner_collection_delay_seconds_count", nil, 1},
		{"gleaner_queue_oldest_seconds", nil, 0},
		{"gleaner_writes_enabled", nil, 1},
		{"workqueue_depth", []string{`name="gleaner"`}, 0},
	} {
		got, ok := g.metric(tc.name, tc.labels...)
		if !ok || got < tc.least {
			t.Errorf("%s%v is %v (exists: %v), want at least %v", tc.name, tc.labels, got, ok, tc.least)
		}
	}
}

func TestLog_HasOneLineForEachDecision(t *testing.T) {
	w := newEnv(t, devtest.Shared(t))
	// With more workers, the dependent may be deleted before the deletion of its owner, which was seen
	// already, is recorded. Then the line ends with that owner.
	g := startReady(t, devtest.Shared(t), "--workers=1")
	owner := w.create("owner")
	middle := w.create("middle", owner)
	dependent := w.create("dependent", middle)
	w.delete(owner)
	w.waitForDeletion(dependent)
	want := map[string]any{
		"level": "info", "logger": "collector", "msg": "Decided",
		"object": "ConfigMap " + w.ns + "/dependent", "uid": string(dependent.UID), "apiVersion": "v1",
		"action": "Delete", "how": "Background", "reason": "OwnersAbsent", "result": "Done",
		"why": fmt.Sprintf("ConfigMap %[1]s/dependent: deleted (Background), since ConfigMap %[1]s/middle is absent (its deletion was observed), "+
			"since ConfigMap %[1]s/owner is absent (its deletion was observed)", w.ns),
	}
	var got []map[string]any
	devtest.Eventually(t, timeout, func() error { // the log line follows the write
		if got = g.decisionLines(dependent.UID); len(got) == 0 {
			return errors.New("no log line")
		}
		return nil
	})
	delete(got[0], "ts")
	if diff := cmp.Diff([]map[string]any{want}, got); diff != "" {
		t.Error(diff)
	}
}

func TestDryRun_DecidesAndWritesNothing(t *testing.T) {
	w := newEnv(t, devtest.Shared(t))
	g := startReady(t, devtest.Shared(t), "--dry-run", "--canary-timeout=2s", "--leader-elect", "--namespace="+w.ns)
	dependent := w.createOrphan("dependent")
	devtest.Eventually(t, timeout, func() error {
		for _, e := range g.records(dependent.UID) {
			if e.Action == record.Delete && e.Result == "DryRun" {
				return nil
			}
		}
		return fmt.Errorf("records are %v", g.records(dependent.UID))
	})
	if !w.exists(dependent) {
		t.Error("dependent is gone")
	}
	for _, verb := range []string{"create", "update", "patch", "delete"} {
		if calls, ok := g.metric("gleaner_api_calls_total", `verb="`+verb+`"`); ok {
			t.Errorf("%s was called %v times", verb, calls)
		}
	}
}

func TestIgnoredResources_AreNotCollected(t *testing.T) {
	w := newEnv(t, devtest.Shared(t))
	g := startReady(t, devtest.Shared(t), "--ignore-resources=events,events.events.k8s.io,configmaps")
	ignored := w.createOrphan("ignored")
	owner := w.create("owner")
	secret := w.createSecret("secret", owner) // is not ignored, and shows when the ignored object would have been collected
	w.delete(owner)
	devtest.Eventually(t, timeout, func() error {
		done := g.records(secret.UID) // the first may be about policies that are not loaded yet
		if !slices.ContainsFunc(done, func(e record.Entry) bool { return e.Action == record.Delete }) {
			return fmt.Errorf("Secret is not collected: %v", done)
		}
		return nil
	})
	if !w.exists(ignored) || len(g.records(ignored.UID)) != 0 {
		t.Errorf("ignored object has records: %v", g.records(ignored.UID))
	}
}
