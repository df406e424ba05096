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
	w := newWorld(t, sharedCluster(t))
	g := running(t, sharedCluster(t))
	if got := g.get("/debug/gc/synced"); got.code != http.StatusOK || strings.TrimSpace(got.body) != "ok" {
		t.Errorf("it is ready, and /debug/gc/synced answers %d: %s", got.code, got.body)
	}
	w.goes(w.orphaned("dependent"))
}

func TestRun_LetsACanaryOutAndLeavesNothingOfIt(t *testing.T) {
	w := newWorld(t, sharedCluster(t))
	g := running(t, sharedCluster(t), "--canary-timeout=1s", "--namespace="+w.ns)
	dependent := w.orphaned("dependent")
	w.goes(dependent)
	if left := w.left(); len(left) != 0 {
		t.Errorf("left are %v", left)
	}
	for _, line := range g.decided("") {
		if strings.Contains(fmt.Sprint(line["object"]), "/gleaner-canary-") {
			t.Errorf("it decided about its own canary: %v", line)
		}
	}
}

func TestRun_NeedsNoTypesOfItsOwn(t *testing.T) {
	cluster := sharedCluster(t)
	w := newWorld(t, cluster)
	groups, err := w.kube.Discovery().ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return strings.Contains(g.Name, "gleaner") }) {
		t.Fatal("its types are there, so this shows nothing")
	}
	g := running(t, cluster)
	w.goes(w.orphaned("dependent"))
	for _, line := range g.log.lines() {
		if strings.Contains(line, `"level":"error"`) {
			t.Errorf("it complains: %s", line)
		}
	}
}

func TestMetrics_TellWhatItKnowsAndDoes(t *testing.T) {
	w := newWorld(t, sharedCluster(t))
	g := running(t, sharedCluster(t))
	dependent := w.orphaned("dependent")
	w.goes(dependent)
	devtest.Eventually(t, patience, func() error { // what is told follows the write
		if len(g.records(dependent.UID)) == 0 {
			return errors.New("no record of it")
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
			t.Errorf("%s%v is %v (there: %v), want %v at least", tc.name, tc.labels, got, ok, tc.least)
		}
	}
}

func TestLog_HasOneLineForEachDecision(t *testing.T) {
	w := newWorld(t, sharedCluster(t))
	g := running(t, sharedCluster(t))
	owner := w.make("owner")
	middle := w.make("middle", owner)
	dependent := w.make("dependent", middle)
	w.delete(owner)
	w.goes(dependent)
	want := map[string]any{
		"level": "info", "logger": "collector", "msg": "Decided",
		"object": "ConfigMap " + w.ns + "/dependent", "uid": string(dependent.UID), "apiVersion": "v1",
		"action": "Delete", "how": "Background", "reason": "OwnersAbsent", "result": "Done",
		"why": fmt.Sprintf("ConfigMap %[1]s/dependent: deleted (Background), since ConfigMap %[1]s/middle is absent (its deletion was watched), "+
			"since ConfigMap %[1]s/owner is absent (its deletion was watched)", w.ns),
	}
	var got []map[string]any
	devtest.Eventually(t, patience, func() error { // the line follows the write
		if got = g.decided(dependent.UID); len(got) == 0 {
			return errors.New("no line about it")
		}
		return nil
	})
	delete(got[0], "ts")
	if diff := cmp.Diff([]map[string]any{want}, got); diff != "" {
		t.Error(diff)
	}
}

func TestDryRun_DecidesAndWritesNothing(t *testing.T) {
	w := newWorld(t, sharedCluster(t))
	g := running(t, sharedCluster(t), "--dry-run", "--canary-timeout=2s", "--leader-elect", "--namespace="+w.ns)
	dependent := w.orphaned("dependent")
	devtest.Eventually(t, patience, func() error {
		for _, e := range g.records(dependent.UID) {
			if e.Action == record.Delete && e.Result == "DryRun" {
				return nil
			}
		}
		return fmt.Errorf("the records are %v", g.records(dependent.UID))
	})
	if !w.exists(dependent) {
		t.Error("the dependent is gone")
	}
	for _, verb := range []string{"create", "update", "patch", "delete"} {
		if calls, ok := g.metric("gleaner_api_calls_total", `verb="`+verb+`"`); ok {
			t.Errorf("it has called %s %v times", verb, calls)
		}
	}
}

func TestIgnoredResources_AreLeftAlone(t *testing.T) {
	w := newWorld(t, sharedCluster(t))
	g := running(t, sharedCluster(t), "--ignore-resources=events,events.events.k8s.io,configmaps")
	ignored := w.orphaned("ignored")
	owner := w.make("owner")
	secret := w.makeSecret("secret", owner) // is not ignored, and shows when the other would have been collected
	w.delete(owner)
	devtest.Eventually(t, patience, func() error {
		done := g.records(secret.UID) // the first may say that the policies are still being read
		if !slices.ContainsFunc(done, func(e record.Entry) bool { return e.Action == record.Delete }) {
			return fmt.Errorf("the secret is not collected: %v", done)
		}
		return nil
	})
	if !w.exists(ignored) || len(g.records(ignored.UID)) != 0 {
		t.Errorf("it is not left alone: %v", g.records(ignored.UID))
	}
}
