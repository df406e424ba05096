package nodestatus_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/nodeagent"
	"github.com/gleaner-dev/gleaner/operator/noderetention"
	"github.com/gleaner-dev/gleaner/operator/nodestatus"
	"github.com/gleaner-dev/gleaner/operator/retain"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func conditions(r nodeagent.Report) map[string]string {
	got := map[string]string{}
	for _, c := range nodestatus.Of(v1alpha1.NodeRetentionStatus{}, r, nodestatus.Totals{}).Conditions {
		got[c.Type] = string(c.Status) + " " + c.Reason
	}
	return got
}

func TestConditions_AreTrueOnlyIfSeenToBeSo(t *testing.T) {
	failed, usage, short := errors.New("no connection"), &retain.Usage{Capacity: 1000, Available: 500}, &nodeagent.Shortage{UsedPercent: 50, HighPercent: 40}
	read := func(r nodeagent.Report) nodeagent.Report {
		r.RuntimeAnswered, r.UsesRead = true, true
		return r
	}
	for what, c := range map[string]struct {
		report                 nodeagent.Report
		runtime, uses, usageIs string
	}{
		"nothing is known":             {nodeagent.Report{}, "Unknown NotAsked", "Unknown NotAsked", "Unknown UsageUnknown"},
		"all is well":                  {read(nodeagent.Report{Usage: usage, HighPercent: 80}), "True RuntimeAnswers", "True UsesRead", "True BelowThreshold"},
		"no policy limits the usage":   {read(nodeagent.Report{Usage: usage}), "True RuntimeAnswers", "True UsesRead", "True NoThreshold"},
		"the runtime fails":            {nodeagent.Report{Usage: usage, HighPercent: 80, RuntimeErr: failed}, "False RuntimeFailed", "Unknown NotAsked", "Unknown UsageUnknown"},
		"the Pods can't be read":       {nodeagent.Report{Usage: usage, HighPercent: 80, RuntimeAnswered: true, UsesErr: failed}, "True RuntimeAnswers", "False UsesUnreadable", "True BelowThreshold"},
		"the usage can't be read":      {read(nodeagent.Report{UsageErr: failed}), "True RuntimeAnswers", "True UsesRead", "Unknown UsageUnknown"},
		"too little was freed":         {read(nodeagent.Report{Usage: usage, HighPercent: 40, Short: short}), "True RuntimeAnswers", "True UsesRead", "False TooLittleFreed"},
		"too little, and then no more": {nodeagent.Report{Usage: usage, HighPercent: 40, RuntimeErr: failed, Short: short}, "False RuntimeFailed", "Unknown NotAsked", "False TooLittleFreed"},
	} {
		got := conditions(c.report)
		if got[v1alpha1.ConditionRuntimeReady] != c.runtime || got[v1alpha1.ConditionUsesKnown] != c.uses || got[v1alpha1.ConditionUsageWithinLimits] != c.usageIs {
			t.Errorf("%s: %v", what, got)
		}
	}
}

func TestConditions_KeepTheTimeOfTheirLastChange(t *testing.T) {
	first := nodestatus.Of(v1alpha1.NodeRetentionStatus{}, nodeagent.Report{UsesRead: true}, nodestatus.Totals{})
	for at := range first.Conditions {
		first.Conditions[at].LastTransitionTime = metav1.NewTime(now)
	}
	second := nodestatus.Of(first, nodeagent.Report{UsesRead: true, RuntimeErr: errors.New("no connection")}, nodestatus.Totals{})
	if c := meta.FindStatusCondition(second.Conditions, v1alpha1.ConditionUsesKnown); !c.LastTransitionTime.Time.Equal(now) {
		t.Errorf("it changed at %s", c.LastTransitionTime)
	}
	if second.Reason != v1alpha1.ReasonRuntimeFailed {
		t.Errorf("reason: %q", second.Reason)
	}
}

// report is one with many removals and long names.
func report() nodeagent.Report {
	p := noderetention.Policy{Name: "old", Generation: 3, Enforce: true}
	r := nodeagent.Report{Time: now, Policies: []noderetention.Policy{p}, Freed: 5 << 30, Images: &nodeagent.Images{Total: 100, InUse: 40}, Containers: &nodeagent.Containers{Exited: 7}}
	result := noderetention.Result{Policy: p}
	for n := range 30 {
		i := noderetention.Item{ID: fmt.Sprint("sha256:", n), Name: "registry.example.com/" + strings.Repeat("x", 2000) + fmt.Sprint(n), Size: 1 << 30, Reason: retain.NotUsed}
		r.Removals = append(r.Removals, nodeagent.Removal{Item: i, Kind: nodeagent.Image, Policy: "old", Time: now.Add(time.Duration(n) * time.Second)})
		i.ID += "-due"
		result.Removals = append(result.Removals, i)
		i.ID, i.Due = i.ID+"later", now.Add(time.Duration(n)*time.Hour)
		result.Upcoming = append(result.Upcoming, i)
	}
	r.Removals = append(r.Removals, nodeagent.Removal{Item: noderetention.Item{ID: "c", Name: "shop/web/c"}, Kind: nodeagent.Container, Err: errors.New(strings.Repeat("y", 5000))})
	r.Images.Results = []noderetention.Result{result}
	return r
}

func TestStatus_IsBounded(t *testing.T) {
	var totals nodestatus.Totals
	totals.Add(report())
	totals.Add(report())
	s := nodestatus.Of(v1alpha1.NodeRetentionStatus{}, report(), totals)
	if len(s.NextRemovals) != 10 || len(s.RecentRemovals) != 20 || s.Images.Removed != 60 || s.Images.Due != 30 || s.Images.FreedBytes != 10<<30 || s.Containers.Exited != 7 {
		t.Errorf("status: %d next, %d recent, %+v %+v", len(s.NextRemovals), len(s.RecentRemovals), s.Images, s.Containers)
	}
	if newest := s.RecentRemovals[0]; newest.ID != "sha256:29" || !newest.Time.Equal(&metav1.Time{Time: now.Add(29 * time.Second)}) {
		t.Errorf("the newest removal: %s at %s", newest.ID, newest.Time)
	}
	for _, removal := range append(s.NextRemovals, s.RecentRemovals...) {
		if len(removal.Name) > 1024 || removal.Policy != "old" {
			t.Errorf("a removal of %q with a name of %d bytes", removal.Policy, len(removal.Name))
		}
	}
	if f := s.LastFailure; f == nil || len(f.Message) > v1alpha1.MaxFailureMessage || !strings.HasPrefix(f.Message, "Container shop/web/c: yyy") {
		t.Errorf("last failure: %+v", f)
	}
	if p := s.Policies[0]; p.Name != "old" || p.Generation != 3 || p.Mode != v1alpha1.ModeEnforce {
		t.Errorf("policies: %+v", s.Policies)
	}
}

func TestStatus_SaysWhyOthersStay(t *testing.T) {
	r := nodeagent.Report{Images: &nodeagent.Images{Results: []noderetention.Result{
		{Kept: map[string]retain.Reason{"a": retain.IsUsed, "b": retain.WithinLimits, "c": retain.IsProtected, "d": retain.WithinLimits}},
		{Kept: map[string]retain.Reason{"a": retain.IsUsed, "b": retain.TooYoung, "c": retain.TooYoung, "d": retain.WithinLimits}},
	}}, Containers: &nodeagent.Containers{}}
	s := nodestatus.Of(v1alpha1.NodeRetentionStatus{}, r, nodestatus.Totals{})
	if diff := cmp.Diff(map[string]int64{"InUse": 1, "Protected": 1, "MinAge": 1}, s.Images.Kept); diff != "" || s.Containers.Kept != nil {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStatus_WhatIsDueComesFirst_ThenTheNext(t *testing.T) {
	r := report()
	r.Images.Results[0].Removals = r.Images.Results[0].Removals[:1]
	s := nodestatus.Of(v1alpha1.NodeRetentionStatus{}, r, nodestatus.Totals{})
	if s.NextRemovals[0].Time != nil || s.NextRemovals[0].Reason != string(retain.NotUsed) {
		t.Errorf("the first: %+v", s.NextRemovals[0])
	}
	if s.NextRemovals[2].Reason != "" || !s.NextRemovals[2].Time.Equal(&metav1.Time{Time: now.Add(time.Hour)}) {
		t.Errorf("the third: %+v", s.NextRemovals[2])
	}
}

func TestEvents_OneForEachPolicyAndReason_AndNoneForTheFirstShortage(t *testing.T) {
	r := report()
	r.Removals = append(r.Removals, nodeagent.Removal{Item: noderetention.Item{ID: "d", Name: "shop/web/d", Reason: retain.Excess}, Kind: nodeagent.Container, Policy: "few"})
	r.Short = &nodeagent.Shortage{UsedPercent: 90, HighPercent: 85, Freed: 3 << 20}
	first, later := nodestatus.Events(r, true), nodestatus.Events(r, false)
	if len(first) != 3 || len(later) != 4 {
		t.Fatalf("%d events, then %d", len(first), len(later))
	}
	for at, want := range []string{
		"NodeRetentionPolicy old removed 30 images of 30.0 GiB (registry.example.com/", "NodeRetentionPolicy few removed 1 container (shop/web/d): above maxPerPodContainer",
		"could not remove 1 item from the node, the last one container shop/web/c: yyy", "90% of the file system that has the images is used, and 85% is allowed; removing unused images freed 3.0 MiB",
	} {
		if e := later[at]; !strings.HasPrefix(e.Message, want) || len(e.Message) > 1024 {
			t.Errorf("event %d: %s %q", at, e.Reason, e.Message)
		}
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 bytes", 1023: "1023 bytes", 1024: "1.0 KiB", 1536: "1.5 KiB", 5 << 20: "5.0 MiB", 3 << 40: "3.0 TiB", 1 << 62: "4096.0 PiB"} {
		if got := nodestatus.Bytes(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
