package monitor

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/replicas"
	"github.com/gleaner-dev/gleaner/operator/record"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func entry(minute int, name string, asked ...record.Asked) record.Entry {
	return record.Entry{Time: start.Add(time.Duration(minute) * time.Minute), Object: record.Object{Kind: "ConfigMap", Name: name, ResourceVersion: fmt.Sprint(minute)}, Asked: asked}
}

func said(policy, hook, decision string) record.Asked {
	return record.Asked{Policy: policy, Mode: "Monitor", Hook: hook, Decision: decision}
}

func TestOf_ListsPerPolicyWhatWouldHaveBecomeOfObjects(t *testing.T) {
	enforced := said("ClusterGCPolicy c", "collect", "Delete")
	enforced.Mode = "Enforce"
	fault := said("GCPolicy shop/b", "collect", "")
	fault.Fault = "no verdict"
	found := replicas.Records{Since: &start, Entries: []record.Entry{
		entry(1, "changes", said("ClusterGCPolicy a", "collect", "Orphan")),
		entry(2, "web", said("ClusterGCPolicy a", "propagate", "Orphan"), said("GCPolicy shop/b", "propagate", "Foreground")),
		entry(3, "changes", said("ClusterGCPolicy a", "collect", "Delete"), fault, enforced),
		entry(4, "waits", said("ClusterGCPolicy a", "collect", "Wait")),
		entry(5, "left", said("ClusterGCPolicy a", "collect", "Abstain")),
		entry(6, "kept", said("ClusterGCPolicy a", "collect", "Orphan")),
		entry(7, "done", said("Finalizer shop/f", "finalize", "Done")),
		entry(8, "failed", said("Finalizer shop/f", "finalize", "Fail")),
	}}
	told := func(r Report) []string {
		var lines []string
		for _, p := range r.Policies {
			for _, d := range p.Decisions {
				lines = append(lines, fmt.Sprintf("%s: %s %s", p.Policy, d.Name, d.Outcome))
			}
		}
		return lines
	}
	r := Of(found, "", "")
	want := []string{
		"ClusterGCPolicy a: web DependentsKept", "ClusterGCPolicy a: changes Deleted", "ClusterGCPolicy a: waits KeptForNow",
		"ClusterGCPolicy a: left Unaffected", "ClusterGCPolicy a: kept Kept",
		"Finalizer shop/f: done Released", "Finalizer shop/f: failed KeptForNow",
		"GCPolicy shop/b: web DependentsDeleted", "GCPolicy shop/b: changes KeptByFault",
	}
	if diff := cmp.Diff(want, told(r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if r.Since == nil || !r.Since.Time.Equal(start) {
		t.Errorf("since %v", r.Since)
	}
	if got := Of(found, "", "other"); len(got.Policies) != 0 {
		t.Errorf("of another namespace: %+v", got)
	}
	if diff := cmp.Diff(want[5:7], told(Of(found, "Finalizer shop/f", ""))); diff != "" {
		t.Errorf("of one alone (-want +got):\n%s", diff)
	}
}
