package collector_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

// witness is a step that lists the writes, and answers with an Admission.
type witness struct {
	answer func(writer.Write) writer.Admission // nil: each write passes
	writes []string
}

func (s *witness) Admit(_ context.Context, write writer.Write) (writer.Admission, error) {
	s.writes = append(s.writes, fmt.Sprintf("%s: %s %s %s", write.Origin, write.Effect, write.Target.Kind.Kind, write.Target.Name))
	if s.answer == nil {
		return writer.Admission{Outcome: writer.Pass}, nil
	}
	return s.answer(write), nil
}

func (s *witness) Settle(context.Context, writer.Write, writer.Settlement) {}

// witnessed returns a world whose writes pass a step.
func witnessed(t *testing.T, change ...func(*world)) (*world, *witness) {
	t.Helper()
	w, s := newWorld(t), &witness{}
	w.steps = []writer.Step{s}
	for _, c := range change {
		c(w)
	}
	w.connect()
	return w, s
}

// given creates objects that are seen at once.
func (w *world) given(lines ...string) {
	for _, args := range w.lines(strings.Join(lines, "\n")) {
		w.see(w.create(args))
	}
}

// sent returns the number of writes that the API server has received.
func (w *world) sent() int { return w.api.counts[http.MethodDelete] + w.api.counts[http.MethodPatch] }

func TestWrites_ToAnOwnerAndItsDependentsPassThroughTheSteps(t *testing.T) {
	w, s := witnessed(t)
	govern(w, w.lines("Deployment.apps propagate")[0], `{"decision": "Orphan", "dependents": [{"group": "apps", "kind": "ReplicaSet", "decision": "Delete"}]}`)
	w.given("Deployment.apps shop/web", "ReplicaSet.apps shop/rs owners=(Deployment.apps:web)", "Secret shop/password owners=(Deployment.apps:web)")
	w.settle()
	w.delete(words{plain: []string{"web", "Background"}})
	w.settle()
	want := []string{
		"collector: protects Deployment web", // its hold
		"collector: state Deployment web",
		"collector: deletes ReplicaSet rs",
		"collector: deletes Deployment web", // with another propagation policy
		"collector: orphans Secret password",
		"collector: releases Deployment web",
		"collector: releases Deployment web",
	}
	if diff := cmp.Diff(want, s.writes); diff != "" {
		t.Error(diff)
	}
	if n := w.sent(); n != len(want) {
		t.Errorf("%d writes were sent, but %d have passed the step", n, len(want))
	}
}

func TestWrite_SaysWhyItIsMade(t *testing.T) {
	w, s := witnessed(t)
	var causes []writer.Cause
	s.answer = func(write writer.Write) writer.Admission {
		if write.Effect == writer.Deletes {
			causes = append(causes, write.Cause)
		}
		return writer.Admission{Outcome: writer.Pass}
	}
	govern(w, w.lines("Secret collect")[0], `{"decision": "Delete", "reason": "no longer needed"}`)
	w.given("ConfigMap shop/a owners=(ConfigMap:gone)", "Secret shop/b owners=(ConfigMap:gone)")
	w.settle()
	slices.SortFunc(causes, func(a, b writer.Cause) int { return strings.Compare(a.Policy, b.Policy) })
	want := []writer.Cause{
		{Reason: "OwnersAbsent", Message: "the API server has no such object", Owner: "gone"},
		{Reason: "OwnersAbsent", Message: "no longer needed", Owner: "gone", Policy: "ClusterGCPolicy policy-1"},
	}
	if diff := cmp.Diff(want, causes); diff != "" {
		t.Error(diff)
	}
}

func TestWrite_ThatIsRefusedIsRecordedAsFailed(t *testing.T) {
	for claim, answer := range map[string]writer.Admission{"refused": {Outcome: writer.Refuse, Reason: "budget"}, "not admitted": {Reason: "budget"}} {
		t.Run(claim, func(t *testing.T) {
			w, s := witnessed(t)
			s.answer = func(writer.Write) writer.Admission { return answer }
			w.given("ConfigMap shop/a owners=(ConfigMap:gone)")
			_, err := w.Reconcile(t.Context(), graph.IDOf("a"))
			if err == nil || !strings.Contains(err.Error(), "stopped: budget") {
				t.Errorf("the error is %v", err)
			}
			entries := w.records.Entries(types.UID("a"))
			if len(entries) != 1 || entries[0].Result != "Failed" || entries[0].Action != record.Delete || w.sent() != 0 {
				t.Errorf("recorded are %+v, %d writes were sent", entries, w.sent())
			}
		})
	}
}

func TestWrite_ThatHasToWaitIsRetriedAndNotRecorded(t *testing.T) {
	w, s := witnessed(t)
	s.answer = func(writer.Write) writer.Admission { return writer.Admission{Outcome: writer.Wait, Reason: "later"} }
	w.given("ConfigMap shop/a owners=(ConfigMap:gone)")
	result, err := w.Reconcile(t.Context(), graph.IDOf("a"))
	if err != nil || result.RequeueAfter == 0 || len(w.records.Entries("a")) != 0 || w.sent() != 0 {
		t.Fatalf("%+v, %v, recorded are %+v", result, err, w.records.Entries("a"))
	}
	s.answer = nil
	if result, err = w.Reconcile(t.Context(), graph.IDOf("a")); err != nil || result.RequeueAfter != 0 || w.sent() != 1 {
		t.Errorf("%+v, %v, %d writes were sent", result, err, w.sent())
	}
}

func TestWrite_ThatHasToWait_IsDecidedAgainWhenTheStepSays(t *testing.T) {
	w, s := witnessed(t)
	s.answer = func(writer.Write) writer.Admission {
		return writer.Admission{Outcome: writer.Wait, Reason: "paused", Retry: time.Hour}
	}
	w.given("ConfigMap shop/a owners=(ConfigMap:gone)")
	if result, err := w.Reconcile(t.Context(), graph.IDOf("a")); err != nil || result.RequeueAfter != time.Hour {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestWrite_OfAChangedObjectIsDecidedAgain(t *testing.T) {
	w, s := witnessed(t)
	s.answer = func(writer.Write) writer.Admission {
		if len(s.writes) == 1 {
			return writer.Admission{Outcome: writer.Changed, Reason: "another resourceVersion"}
		}
		return writer.Admission{Outcome: writer.Pass}
	}
	w.given("ConfigMap shop/a owners=(ConfigMap:gone)")
	_, err := w.Reconcile(t.Context(), graph.IDOf("a"))
	var results []string
	for _, e := range w.records.Entries("a") {
		results = append(results, e.Result)
	}
	if diff := cmp.Diff([]string{"Changed", "Done"}, results); err != nil || diff != "" || w.sent() != 1 {
		t.Errorf("%v, %d writes were sent: %s", err, w.sent(), diff)
	}
}

func TestDryRun_AsksNoStep(t *testing.T) {
	w, s := witnessed(t, func(w *world) { w.dryRun = true })
	w.given("ConfigMap shop/a owners=(ConfigMap:gone)")
	_, err := w.Reconcile(t.Context(), graph.IDOf("a"))
	entries := w.records.Entries("a")
	if err != nil || len(entries) != 1 || entries[0].Result != "DryRun" || len(s.writes) != 0 || w.sent() != 0 {
		t.Errorf("%v, recorded are %+v, the step was asked about %v, %d writes were sent", err, entries, s.writes, w.sent())
	}
}

// The gate is closed after the reviewer has seen it open.
func TestReview_WritesNothingOnceTheGateIsClosed(t *testing.T) {
	w, s := witnessed(t, func(w *world) { w.companion = true })
	govern(w, w.lines("ConfigMap collect")[0], `{"decision": "Delete", "propagation": "Foreground"}`)
	s.answer = func(writer.Write) writer.Admission {
		w.gate.Follow()
		return writer.Admission{Outcome: writer.Pass}
	}
	if said := w.mayGo(companion.VetoPath); !strings.Contains(said, `"allowed":false`) {
		t.Fatalf("answered %s", said)
	}
	if diff := cmp.Diff([]string{"collector: deletes ConfigMap a"}, s.writes); diff != "" || w.sent() != 0 {
		t.Errorf("%d writes were sent: %s", w.sent(), diff)
	}
	if _, queued := w.woken[graph.IDOf("u-a")]; !queued || len(w.records.Entries("u-a")) != 0 {
		t.Errorf("it is queued: %t; recorded are %+v", queued, w.records.Entries("u-a"))
	}
}
