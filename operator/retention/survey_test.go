package retention_test

import (
	"errors"
	"fmt"
	"slices"
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

// removals returns what a policy removes, as "name reason".
func removals(r retention.Result) (list []string) {
	for _, d := range r.Removals {
		list = append(list, fmt.Sprintf("%s %s", d.Name, d.Reason))
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
	expect(t, "removals, of which those at the same time are sorted", []string{"a Expired", "d Expired"}, slices.Sorted(slices.Values(removals(r))))
	if want := testTime.Add(3 * time.Hour); !r.Next.Equal(want) {
		t.Errorf("the next evaluation is at %s; want %s", r.Next, want)
	}
	var kept []string
	for _, d := range r.Kept {
		kept = append(kept, fmt.Sprintf("%s %s %t", d.Name, d.Reason, d.Due.Equal(r.Next)))
	}
	expect(t, "kept, and whether they are next", []string{"b WithinLimits true", "c WithinLimits false"}, kept)
	if got := r.Removals[0].String(); got != "Job ci/a" && got != "Job ci/d" {
		t.Errorf("a removal is of %s", got)
	}
	if rv := r.Removals[0].ResourceVersion; rv != "7" {
		t.Errorf("it was decided about in version %q", rv)
	}
}

func TestP01_P09_TheLastOfEachGroupStay(t *testing.T) {
	rule := retain.Rule{KeepLast: number(1), Order: retain.ByFinish, MinAge: 0}
	s := retention.New(retention.Policy{Name: "last", Selects: all, Rule: rule, Options: candidate.Options{GroupBy: candidate.ByLabel, Label: "app"}})
	for _, o := range []*unstructured.Unstructured{job("a1", 3), job("a2", 1), job("a3", 2), job("b1", 9)} {
		s.Put(o)
	}
	s.Put(job("c1", 9, func(o *unstructured.Unstructured) { o.SetLabels(nil) }))
	r := s.Evaluate(retention.Moment{Now: testTime})
	expect(t, "removals, the oldest first", []string{"a1 KeepLast", "a3 KeepLast"}, removals(r))
	var kept []string
	for _, d := range r.Kept {
		kept = append(kept, fmt.Sprintf("%s %s %s", d.Name, d.Reason, d.Message))
	}
	expect(t, "kept", []string{"a2 WithinLimits ", "b1 WithinLimits ", "c1 Protected it has no label app to be grouped by"}, kept)
}

func TestP25_WhatOnePolicyKeepsStays(t *testing.T) {
	onlyA := func(o *unstructured.Unstructured) (bool, error) { return strings.HasPrefix(o.GetName(), "a"), nil }
	last := retention.New(retention.Policy{Name: "last", Selects: onlyA, Rule: retain.Rule{KeepLast: number(1), Order: retain.ByCreation}})
	b1, a1, a2 := job("b1", 6), job("a1", 5), job("a2", 4)
	expect(t, "before it has read anything", "last has not decided about it yet", last.Keeps(a1))
	for _, o := range []*unstructured.Unstructured{b1, a1, a2} {
		last.Put(o)
	}
	expect(t, "before it has decided", "last has not decided about it yet", last.Keeps(a1))
	last.Evaluate(retention.Moment{Now: testTime})
	for o, want := range map[*unstructured.Unstructured]string{b1: "", a1: "", a2: "last keeps it", job("a3", 9): "last has not decided about it yet"} {
		expect(t, o.GetName(), want, last.Keeps(o))
	}
	last.Forget(a1.GetUID())
	expect(t, "one that is forgotten", "last has not decided about it yet", last.Keeps(a1))
}

// What is not known keeps the object, from other policies too.
func TestP02_AnObjectThatMayBeSelectedStays(t *testing.T) {
	fails := func(o *unstructured.Unstructured) (bool, error) { return false, errors.New("no such field: spec.size") }
	s := retention.New(retention.Policy{Name: "broken", Selects: fails, Rule: retain.Rule{MaxAge: time.Hour, MaxAgeFrom: retain.ByCreation}})
	s.Put(job("a", 5))
	r := s.Evaluate(retention.Moment{Now: testTime})
	expect(t, "removals", []string(nil), removals(r))
	if len(r.Kept) != 1 || !strings.Contains(r.Kept[0].Message, "whether it is selected is unknown: no such field") {
		t.Errorf("kept: %+v", r.Kept)
	}
	expect(t, "why another policy must not remove it", "broken keeps it: whether it is selected is unknown: no such field: spec.size", s.Keeps(job("a", 5)))
}

// settings returns a ConfigMap.
func settings(name string) *unstructured.Unstructured {
	return job(name, 90, func(o *unstructured.Unstructured) {
		o.SetAPIVersion("v1")
		o.SetKind("ConfigMap")
	})
}

// uses returns what uses ConfigMaps by their names.
func uses(names ...string) candidate.Uses {
	return candidate.Uses{Complete: true, User: func(_ schema.GroupKind, _, name string) string {
		if slices.Contains(names, name) {
			return "Pod ci/web"
		}
		return ""
	}}
}

func TestP05_UnusedObjectsAreRemovedOnceThatWasObserved(t *testing.T) {
	s := retention.New(retention.Policy{Name: "unused", Selects: all, Rule: retain.Rule{MaxUnused: 24 * time.Hour}})
	for _, name := range []string{"used", "recently", "long"} {
		s.Put(settings(name))
	}
	earlier := retention.Moment{Now: testTime.Add(-time.Hour), Since: testTime.Add(-48 * time.Hour), Uses: uses("used", "recently")}
	expect(t, "removals while it is used", []string{"long MaxUnused"}, removals(s.Evaluate(earlier)))
	moment := retention.Moment{Now: testTime, Since: earlier.Since, Uses: uses("used")}
	r := s.Evaluate(moment)
	expect(t, "removals", []string{"long MaxUnused"}, removals(r))
	if want := testTime.Add(24*time.Hour + 1); !r.Next.Equal(want) {
		t.Errorf("the next evaluation is at %s; want %s", r.Next, want)
	}
	soon, blind, incomplete := moment, moment, moment
	soon.Since = testTime.Add(-time.Hour)
	expect(t, "removals after an hour", []string(nil), removals(s.Evaluate(soon)))
	blind.Since = time.Time{}
	expect(t, "removals if uses are not observed", []string(nil), removals(s.Evaluate(blind)))
	incomplete.Uses.Complete = false
	expect(t, "removals if not everything was read", []string(nil), removals(s.Evaluate(incomplete)))
	moment.Now = r.Next
	expect(t, "removals a day later", []string{"long MaxUnused", "recently MaxUnused"}, removals(s.Evaluate(moment)))
}

// P-03: a use that began and ended between two evaluations counts.
func TestP03_WhatIsReleasedWasUsedUntilThen(t *testing.T) {
	s := retention.New(retention.Policy{Name: "unused", Selects: all, Rule: retain.Rule{MaxUnused: 24 * time.Hour}})
	s.Put(settings("a"))
	s.Put(settings("b"))
	s.Released(testTime.Add(-time.Hour), func(kind schema.GroupKind, namespace, name string) bool {
		return kind.Kind == "ConfigMap" && namespace == "ci" && name == "a"
	})
	s.Put(settings("a")) // a change does not forget it
	moment := retention.Moment{Now: testTime, Since: testTime.Add(-48 * time.Hour), Uses: uses()}
	expect(t, "removals", []string{"b MaxUnused"}, removals(s.Evaluate(moment)))
}

func TestSurvey_FollowsObjectsAsTheyChange(t *testing.T) {
	labeled := func(o *unstructured.Unstructured) (bool, error) { return o.GetLabels()["app"] != "keep", nil }
	s := retention.New(retention.Policy{Name: "finished", Selects: labeled, Rule: retain.Rule{TTL: number(time.Hour)}})
	put := func(what string, o *unstructured.Unstructured, want bool) {
		t.Helper()
		if got := s.Put(o); got != want {
			t.Errorf("%s: changed %t", what, got)
		}
	}
	put("a new object", job("a", -1), true)
	expect(t, "while it runs", []string(nil), removals(s.Evaluate(retention.Moment{Now: testTime})))
	put("one that has finished", job("a", 5), true)
	expect(t, "when it has finished", []string{"a Expired"}, removals(s.Evaluate(retention.Moment{Now: testTime})))
	put("an annotation", job("a", 5, func(o *unstructured.Unstructured) {
		o.SetAnnotations(map[string]string{"a": "b"})
		o.SetResourceVersion("8")
	}), false)
	if got := s.Evaluate(retention.Moment{Now: testTime}).Removals; len(got) != 1 || got[0].ResourceVersion != "8" {
		t.Errorf("it is decided about in its last version: %+v", got)
	}
	keep := job("a", 5, func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"app": "keep"}) })
	put("one that is not selected any more", keep, true)
	expect(t, "then", []string(nil), removals(s.Evaluate(retention.Moment{Now: testTime})))
	if s.Len() != 0 {
		t.Errorf("%d objects are kept that the policy does not select", s.Len())
	}
	put("the same again", keep, false)
	s.Put(job("a", 5))
	s.Forget("a")
	expect(t, "when it is gone", []string(nil), removals(s.Evaluate(retention.Moment{Now: testTime})))
}

// A running Job neither counts nor is removed where the order is that of the ends.
func TestSurvey_OnlyFinished_LeavesOthersOut(t *testing.T) {
	s := retention.New(retention.Policy{Name: "last", Selects: all, OnlyFinished: true, Rule: retain.Rule{KeepLast: number(1), Order: retain.ByFinish}})
	running := job("running", -1)
	for _, o := range []*unstructured.Unstructured{running, job("a", 5), job("b", 4)} {
		s.Put(o)
	}
	expect(t, "removals", []string{"a KeepLast"}, removals(s.Evaluate(retention.Moment{Now: testTime})))
	expect(t, "whether it keeps the others", "last keeps it", s.Keeps(job("b", 4)))
	expect(t, "whether it keeps what it leaves out", "", s.Keeps(running))
	broken := job("broken", -1, func(o *unstructured.Unstructured) { o.Object["status"] = map[string]any{"conditions": "none"} })
	s.Put(broken)
	s.Evaluate(retention.Moment{Now: testTime})
	expect(t, "whether it keeps what can't be read", "last keeps it: it is not known whether it has finished: status.conditions is no list", s.Keeps(broken))
}

func TestSurvey_LooksAtNamespacesAtEachEvaluation(t *testing.T) {
	namespaces := map[string]bool{"ci": true}
	s := retention.New(retention.Policy{
		Name: "old", Selects: all, Rule: retain.Rule{MaxAge: time.Hour, MaxAgeFrom: retain.ByCreation},
		SelectsNamespace: func(name string) (bool, error) {
			is, known := namespaces[name]
			if !known {
				return false, errors.New("namespace unread")
			}
			return is, nil
		},
	})
	s.Put(job("a", 5))
	expect(t, "removals", []string{"a MaxAge"}, removals(s.Evaluate(retention.Moment{Now: testTime})))
	expect(t, "whether it keeps it", "", s.Keeps(job("a", 5)))
	namespaces["ci"] = false
	r := s.Evaluate(retention.Moment{Now: testTime})
	expect(t, "removals and what is kept of a namespace that is not selected", 0, len(r.Removals)+len(r.Kept))
	expect(t, "whether it keeps it then", "", s.Keeps(job("a", 5)))
	delete(namespaces, "ci")
	r = s.Evaluate(retention.Moment{Now: testTime})
	if len(r.Removals) != 0 || len(r.Kept) != 1 || r.Kept[0].Message != "whether it is selected is unknown: namespace unread" {
		t.Errorf("with an unread namespace: %+v", r)
	}
	expect(t, "whether it keeps it then", "old keeps it: whether it is selected is unknown: namespace unread", s.Keeps(job("a", 5)))
	namespaces["ci"] = true
	expect(t, "removals, again", []string{"a MaxAge"}, removals(s.Evaluate(retention.Moment{Now: testTime})))
}

func TestSurvey_ListsTheObjectsOfAKind(t *testing.T) {
	s := retention.New(retention.Policy{Name: "all", Selects: all})
	s.Put(job("a", 5, func(o *unstructured.Unstructured) { o.SetDeletionTimestamp(&metav1.Time{Time: testTime}) }))
	s.Put(settings("b"))
	var names []string
	for o := range s.Of(schema.GroupKind{Group: "batch", Kind: "Job"}) {
		names = append(names, o.Name)
		s.Forget(o.UID)
	}
	expect(t, "Jobs", []string{"a"}, names)
	if s.Len() != 1 || s.Has("a") || !s.Has("b") {
		t.Errorf("%d objects are left", s.Len())
	}
}

func TestP12_ProblemsNameTheirObjects(t *testing.T) {
	s := retention.New(retention.Policy{Name: "finished", Selects: all, Rule: retain.Rule{TTL: number(time.Hour)}})
	for i := range 15 {
		s.Put(job(fmt.Sprint("a", i), 1, func(o *unstructured.Unstructured) {
			o.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Failed", "status": "True"}}}
		}))
	}
	problems := s.Evaluate(retention.Moment{Now: testTime}).Problems
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
