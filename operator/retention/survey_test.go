package retention_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/candidate"
	"github.com/gleaner-dev/gleaner/operator/retain"
	"github.com/gleaner-dev/gleaner/operator/retention"
)

var testTime = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// job returns a Job that finished some hours before testTime; not at all if hours is negative. Its UID is its name.
func job(name string, hours int, change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "batch/v1", "kind": "Job"}}
	o.SetNamespace("ci")
	o.SetName(name)
	o.SetUID(types.UID(name))
	o.SetResourceVersion("7")
	o.SetLabels(map[string]string{"app": name[:1]})
	o.SetCreationTimestamp(metav1.NewTime(testTime.Add(-time.Duration(max(hours, 0)+1) * time.Hour)))
	if hours >= 0 {
		at := testTime.Add(-time.Duration(hours) * time.Hour).Format(time.RFC3339)
		o.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Complete", "status": "True", "lastTransitionTime": at}}}
	}
	for _, c := range change {
		c(o)
	}
	return o
}

func all(*unstructured.Unstructured) (bool, error) { return true, nil }

func number[T any](n T) *T { return &n }

// removals returns what all policies remove, as "name policy reason".
func removals(r retention.Result) (list []string) {
	for _, x := range r.Removals {
		list = append(list, fmt.Sprintf("%s %s %s", x.Name, x.Policy, x.Reason))
	}
	return list
}

func expect(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestP12_P14_FinishedJobsAreRemovedWhenTheirTimeHasCome(t *testing.T) {
	s := retention.New(retention.Policy{Name: "finished", Selects: all, Rule: retain.Rule{TTL: number(4 * time.Hour)}})
	for name, hours := range map[string]int{"a": 5, "b": 1, "c": -1, "d": 4} {
		s.Put(job(name, hours))
	}
	s.Put(job("a", 5)) // again, from the next page
	r := s.Evaluate(retention.Moment{Now: testTime})
	expect(t, "removals, of which those at the same time are sorted", []string{"a finished Expired", "d finished Expired"}, sorted(removals(r)))
	if want := testTime.Add(3 * time.Hour); !r.Next.Equal(want) {
		t.Errorf("the next evaluation is at %s; want %s", r.Next, want)
	}
	o := r.Outcome("finished")
	expect(t, "outcome", retention.Outcome{
		Selected: 4, Next: r.Next, Removed: map[retain.Reason]int{retain.Expired: 2}, Kept: map[retain.Reason]int{retain.WithinLimits: 2},
	}, o)
	if got := r.Removals[0].String(); got != "Job ci/a" && got != "Job ci/d" {
		t.Errorf("a removal is of %s", got)
	}
	if rv := r.Removals[0].ResourceVersion; rv != "7" {
		t.Errorf("it was decided about in version %q", rv)
	}
}

func sorted(list []string) []string {
	for i := range list {
		for j := i; j > 0 && list[j] < list[j-1]; j-- {
			list[j], list[j-1] = list[j-1], list[j]
		}
	}
	return list
}

func TestP01_P09_TheLastOfEachGroupStay(t *testing.T) {
	rule := retain.Rule{KeepLast: number(1), Order: retain.ByFinish, MinAge: 0}
	s := retention.New(retention.Policy{Name: "last", Selects: all, Rule: rule, Options: candidate.Options{GroupBy: candidate.ByLabel, Label: "app"}})
	for _, o := range []*unstructured.Unstructured{job("a1", 3), job("a2", 1), job("a3", 2), job("b1", 9)} {
		s.Put(o)
	}
	s.Put(job("c1", 9, func(o *unstructured.Unstructured) { o.SetLabels(nil) }))
	r := s.Evaluate(retention.Moment{Now: testTime})
	expect(t, "removals, the oldest first", []string{"a1 last KeepLast", "a3 last KeepLast"}, removals(r))
	var decisions []string
	for _, d := range r.Decisions("last") {
		decisions = append(decisions, fmt.Sprintf("%s %t %s %s", d.Name, d.Removed, d.Reason, d.Message))
	}
	expect(t, "decisions", []string{
		"a1 true KeepLast ", "a3 true KeepLast ", "a2 false WithinLimits ", "b1 false WithinLimits ", "c1 false Protected it has no label app to be grouped by",
	}, decisions)
	if r.Decisions("other") != nil || r.Outcome("other").Selected != 0 {
		t.Error("a policy that does not exist has decided")
	}
}

func TestP25_WhatOnePolicyKeepsStays(t *testing.T) {
	old := retain.Rule{MaxAge: time.Hour, MaxAgeFrom: retain.ByCreation}
	onlyA := func(o *unstructured.Unstructured) (bool, error) { return strings.HasPrefix(o.GetName(), "a"), nil }
	s := retention.New(
		retention.Policy{Name: "old", Selects: all, Rule: old},
		retention.Policy{Name: "last", Selects: onlyA, Rule: retain.Rule{KeepLast: number(1), Order: retain.ByCreation}},
	)
	for _, o := range []*unstructured.Unstructured{job("b1", 6), job("a1", 5), job("a2", 4)} {
		s.Put(o)
	}
	r := s.Evaluate(retention.Moment{Now: testTime})
	expect(t, "removals", []string{"b1 old MaxAge", "a1 old MaxAge"}, removals(r))
	if len(r.Kept) != 1 || r.Kept[0].Name != "a2" {
		t.Fatalf("kept are %+v", r.Kept)
	}
	expect(t, "who removes", []string{"old"}, r.Kept[0].Removed)
	expect(t, "who keeps", []string{"last"}, r.Kept[0].Kept)
}

// What is not known keeps the object, from other policies too.
func TestP02_AnObjectThatMayBeSelectedStays(t *testing.T) {
	fails := func(o *unstructured.Unstructured) (bool, error) { return false, errors.New("no such field: spec.size") }
	old := retain.Rule{MaxAge: time.Hour, MaxAgeFrom: retain.ByCreation}
	s := retention.New(retention.Policy{Name: "old", Selects: all, Rule: old}, retention.Policy{Name: "broken", Selects: fails, Rule: old})
	s.Put(job("a", 5))
	r := s.Evaluate(retention.Moment{Now: testTime})
	expect(t, "removals", []string(nil), removals(r))
	decisions := r.Decisions("broken")
	if len(decisions) != 1 || !strings.Contains(decisions[0].Message, "whether broken selects it is not known: no such field") {
		t.Errorf("decisions: %+v", decisions)
	}
}

func TestP05_UnusedObjectsAreRemovedOnceThatWasObserved(t *testing.T) {
	settings := func(name string) *unstructured.Unstructured {
		return job(name, 90, func(o *unstructured.Unstructured) {
			o.SetAPIVersion("v1")
			o.SetKind("ConfigMap")
		})
	}
	s := retention.New(retention.Policy{Name: "unused", Selects: all, Rule: retain.Rule{MaxUnused: 24 * time.Hour}})
	for _, name := range []string{"used", "recently", "long"} {
		s.Put(settings(name))
	}
	moment := retention.Moment{
		Now: testTime, Since: testTime.Add(-48 * time.Hour),
		Uses: candidate.Uses{Complete: true, User: func(_ schema.GroupKind, namespace, name string) string {
			return map[string]string{"ci/used": "Pod ci/web"}[namespace+"/"+name]
		}},
		LastUsed: func(uid types.UID) time.Time {
			return map[types.UID]time.Time{"recently": testTime.Add(-time.Hour)}[uid]
		},
	}
	r := s.Evaluate(moment)
	expect(t, "removals", []string{"long unused MaxUnused"}, removals(r))
	if want := testTime.Add(23*time.Hour + 1); !r.Next.Equal(want) {
		t.Errorf("the next evaluation is at %s; want %s", r.Next, want)
	}
	soon, blind, incomplete := moment, moment, moment
	soon.Since = testTime.Add(-time.Hour)
	expect(t, "removals after an hour", []string(nil), removals(s.Evaluate(soon)))
	blind.LastUsed = nil
	expect(t, "removals if uses are not observed", []string(nil), removals(s.Evaluate(blind)))
	incomplete.Uses.Complete = false
	expect(t, "removals if not everything was read", []string(nil), removals(s.Evaluate(incomplete)))
	expect(t, "removals, again", []string{"long unused MaxUnused"}, removals(s.Evaluate(moment)))
}

func TestSurvey_FollowsObjectsAsTheyChange(t *testing.T) {
	labeled := func(o *unstructured.Unstructured) (bool, error) { return o.GetLabels()["app"] != "keep", nil }
	s := retention.New(retention.Policy{Name: "finished", Selects: labeled, Rule: retain.Rule{TTL: number(time.Hour)}})
	s.Put(job("a", -1))
	expect(t, "while it runs", []string(nil), removals(s.Evaluate(retention.Moment{Now: testTime})))
	s.Put(job("a", 5))
	expect(t, "when it has finished", []string{"a finished Expired"}, removals(s.Evaluate(retention.Moment{Now: testTime})))
	s.Put(job("a", 5, func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"app": "keep"}) }))
	expect(t, "when it is not selected any more", []string(nil), removals(s.Evaluate(retention.Moment{Now: testTime})))
	if s.Len() != 0 {
		t.Errorf("%d objects are kept that no policy selects", s.Len())
	}
	s.Put(job("a", 5))
	s.Forget("a")
	expect(t, "when it is gone", []string(nil), removals(s.Evaluate(retention.Moment{Now: testTime})))
}

func TestP12_ProblemsNameTheirObjects(t *testing.T) {
	s := retention.New(retention.Policy{Name: "finished", Selects: all, Rule: retain.Rule{TTL: number(time.Hour)}})
	for i := range 15 {
		s.Put(job(fmt.Sprint("a", i), 1, func(o *unstructured.Unstructured) {
			o.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Failed", "status": "True"}}}
		}))
	}
	problems := s.Evaluate(retention.Moment{Now: testTime}).Outcome("finished").Problems
	if len(problems) != 10 || !strings.HasPrefix(problems[0], "Job ci/a0: it has finished, and no condition says when") {
		t.Errorf("problems: %q", problems)
	}
}

// P-23: two evaluations without a change have the same result.
func TestP23_TheSameObjectsHaveTheSameResult(t *testing.T) {
	s := retention.New(retention.Policy{Name: "last", Selects: all, Rule: retain.Rule{KeepLast: number(3), TTL: number(time.Hour)}})
	for i := range 50 {
		s.Put(job(fmt.Sprint("a", i), i%7))
	}
	first, second := s.Evaluate(retention.Moment{Now: testTime}), s.Evaluate(retention.Moment{Now: testTime})
	expect(t, "removals", removals(first), removals(second))
	if len(first.Removals) < 30 {
		t.Errorf("%d removals", len(first.Removals))
	}
}
