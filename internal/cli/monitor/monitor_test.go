package monitor

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/operator/record"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func entry(minute int, name string, asked ...record.Evaluation) record.Entry {
	return record.Entry{Time: start.Add(time.Duration(minute) * time.Minute), Object: record.Object{Kind: "ConfigMap", Name: name, ResourceVersion: fmt.Sprint(minute)}, Evaluations: asked}
}

func evaluation(policy, hook, decision string) record.Evaluation {
	return record.Evaluation{Policy: policy, Mode: "Monitor", Hook: hook, Decision: decision}
}

func TestFromRecords_ListsOutcomesByPolicy(t *testing.T) {
	enforced := evaluation("ClusterGCPolicy c", "collect", "Delete")
	enforced.Mode = "Enforce"
	fault := evaluation("GCPolicy shop/b", "collect", "")
	fault.Fault = "no verdict"
	found := replicas.Records{Since: &start, Entries: []record.Entry{
		entry(1, "changes", evaluation("ClusterGCPolicy a", "collect", "Orphan")),
		entry(2, "web", evaluation("ClusterGCPolicy a", "propagate", "Orphan"), evaluation("GCPolicy shop/b", "propagate", "Foreground")),
		entry(3, "changes", evaluation("ClusterGCPolicy a", "collect", "Delete"), fault, enforced),
		entry(4, "waits", evaluation("ClusterGCPolicy a", "collect", "Wait")),
		entry(5, "left", evaluation("ClusterGCPolicy a", "collect", "Abstain")),
		entry(6, "kept", evaluation("ClusterGCPolicy a", "collect", "Orphan")),
		entry(7, "done", evaluation("Finalizer shop/f", "finalize", "Done")),
		entry(8, "failed", evaluation("Finalizer shop/f", "finalize", "Fail")),
	}}
	reported := func(r Report) []string {
		var lines []string
		for _, p := range r.Policies {
			for _, d := range p.Decisions {
				lines = append(lines, fmt.Sprintf("%s: %s %s", p.Policy, d.Name, d.Outcome))
			}
		}
		return lines
	}
	r := FromRecords(found, "", "")
	want := []string{
		"ClusterGCPolicy a: web DependentsKept", "ClusterGCPolicy a: changes Deleted", "ClusterGCPolicy a: waits KeptForNow",
		"ClusterGCPolicy a: left Unaffected", "ClusterGCPolicy a: kept Kept",
		"Finalizer shop/f: done Released", "Finalizer shop/f: failed KeptForNow",
		"GCPolicy shop/b: web DependentsDeleted", "GCPolicy shop/b: changes KeptByFault",
	}
	if diff := cmp.Diff(want, reported(r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if r.Since == nil || !r.Since.Time.Equal(start) {
		t.Errorf("since %v", r.Since)
	}
	if got := FromRecords(found, "", "other"); len(got.Policies) != 0 {
		t.Errorf("of another namespace: %+v", got)
	}
	if diff := cmp.Diff(want[5:7], reported(FromRecords(found, "Finalizer shop/f", ""))); diff != "" {
		t.Errorf("of one alone (-want +got):\n%s", diff)
	}
}
