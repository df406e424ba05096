package finalizers

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

func TestWait_EndsExactlyOnTime(t *testing.T) {
	w := newTestEnv(t)
	w.module.returns(waitVerdict)
	o := w.createPending()
	w.wantDelay(w.reconcile(o), time.Hour)
	w.advance(time.Hour - time.Nanosecond)
	w.wantDelay(w.reconcile(o), time.Millisecond) // minimum delay
	if n := len(w.module.takeRequests()); n != 1 {
		t.Fatalf("evaluated %d times too early", n)
	}
	w.advance(time.Nanosecond)
	w.wantDelay(w.reconcile(o), time.Hour)
	if requests := w.module.takeRequests(); len(requests) != 1 || requests[0].Attempt != 2 {
		t.Errorf("requests after the wait: %+v", requests)
	}
}

func TestBackoff_DoublesUpToMaxAndResets(t *testing.T) {
	w := newTestEnv(t)
	w.module.fails("it traps")
	o := w.createPending()
	for _, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		w.wantDelay(w.reconcile(o), want*time.Second)
		w.wantOutcome(Fault, "it traps")
		w.advance(want * time.Second)
	}
	w.module.returns(waitVerdict)
	w.wantDelay(w.reconcile(o), time.Hour)
	w.advance(time.Hour)
	w.module.fails("it traps")
	w.wantDelay(w.reconcile(o), time.Second)
}

func TestBackoff_GrowsWhileRemovalFails(t *testing.T) {
	w := newTestEnv(t)
	o := w.createPending()
	w.api.overrideMethod(http.MethodPatch, forbidden)
	for _, want := range []time.Duration{1, 2, 4} {
		w.wantDelay(w.reconcile(o), want*time.Second)
		n := w.lastOutcome()
		if n.Reason != HostError || !n.Evaluated || !strings.Contains(n.Message, "a webhook says no") {
			t.Fatalf("outcome: %+v", n)
		}
		w.advance(want * time.Second)
	}
	w.api.clearOverride()
	w.wantDelay(w.reconcile(o), 0)
	if n := w.lastOutcome(); n.Reason != Done || !n.Removed {
		t.Errorf("outcome: %+v", n)
	}
}

func TestDeadline(t *testing.T) {
	hold := func(f *policies.Finalizer) { f.Deadline = time.Minute }
	release := func(f *policies.Finalizer) { hold(f); f.ReleaseAtDeadline = true }
	t.Run("is reported when it passes", func(t *testing.T) {
		w := newTestEnv(t, hold)
		w.module.returns(waitVerdict)
		o := w.createPending()
		w.wantDelay(w.reconcile(o), time.Minute)
		w.wantOutcome(Waiting, "")
		w.advance(time.Minute)
		w.wantDelay(w.reconcile(o), time.Hour-time.Minute)
		w.wantOutcome(DeadlineExceeded, "the deadline of 1m0s has passed (onDeadline: Hold)")
		if n := len(w.module.takeRequests()); n != 1 {
			t.Errorf("evaluated %d times", n)
		}
		w.reconcile(o)
		if n := w.lastOutcome(); n.Reason != "" {
			t.Errorf("recorded again: %+v", n)
		}
	})
	t.Run("that passed long ago is reported immediately", func(t *testing.T) {
		w := newTestEnv(t, hold)
		w.module.returns(waitVerdict)
		w.advance(240 * time.Hour)
		w.wantDelay(w.reconcile(w.createPending()), time.Hour)
		w.wantOutcome(DeadlineExceeded, "")
	})
	t.Run("that passed long ago releases the object without evaluation", func(t *testing.T) {
		w := newTestEnv(t, release)
		w.advance(240 * time.Hour)
		o := w.createPending()
		w.wantDelay(w.reconcile(o), 0)
		w.wantOutcome(Released, "onDeadline: Release")
		if n := len(w.module.takeRequests()); n != 0 || w.api.get(o) != nil {
			t.Errorf("evaluated %d times, object: %v", n, w.api.get(o))
		}
	})
	t.Run("does not release the object early", func(t *testing.T) {
		w := newTestEnv(t, release)
		w.module.returns(waitVerdict)
		w.advance(time.Minute - time.Millisecond)
		o := w.createPending()
		w.wantDelay(w.reconcile(o), time.Millisecond)
		w.wantFinalizer(o)
	})
	t.Run("does not release the object in Monitor mode", func(t *testing.T) {
		w := newTestEnv(t, release, func(f *policies.Finalizer) { f.Enforce = false })
		w.module.returns(waitVerdict)
		w.advance(time.Hour)
		o := w.createPending()
		w.reconcile(o)
		w.wantOutcome(DeadlineExceeded, "mode: Monitor")
		w.wantFinalizer(o)
	})
}

func TestModule_IsEvaluatedOncePreconditionsHold(t *testing.T) {
	for name, block := range map[string]func(w *testEnv, o *unstructured.Unstructured) (restore func()){
		"module temporarily not ready": func(w *testEnv, _ *unstructured.Unstructured) func() {
			was := w.controller.finalizer()
			w.controller.update(activeFinalizer{Finalizer: w.finalizer(func(f *policies.Finalizer) { f.Evaluator, f.NotReadyReason = nil, "it is away" })})
			return func() { w.controller.update(was) }
		},
		"object temporarily not selected": func(w *testEnv, o *unstructured.Unstructured) func() {
			was := w.controller.finalizer()
			rules := was.Rules
			was.Rules = []policies.Rule{{Groups: []string{""}, Resources: []string{"secrets"}}}
			return func() { was.Rules = rules }
		},
		"object temporarily unreadable": func(w *testEnv, _ *unstructured.Unstructured) func() {
			w.api.overrideMethod(http.MethodGet, internalError)
			return func() { w.api.clearOverride(); w.advance(time.Second) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv(t)
			w.module.returns(waitVerdict)
			o := w.createPending()
			w.reconcile(o)
			restore := block(w, o)
			w.lastOutcome()
			w.reconcile(o)
			if n := w.lastOutcome(); n.Reason == Waiting || n.Reason == "" {
				t.Fatalf("the precondition had no effect: %+v", n)
			}
			w.module.takeRequests()
			restore()
			w.wantDelay(w.reconcile(o), time.Hour)
			w.wantOutcome(Waiting, "")
			if n := len(w.module.takeRequests()); n != 1 {
				t.Errorf("evaluated %d times", n)
			}
		})
	}
}

// Modules are loading after each start of the operator, which is normal.
func TestLoadingModule_ObjectWaitsAndIsNotStuck(t *testing.T) {
	w := newTestEnv(t)
	was := w.controller.finalizer()
	w.controller.update(activeFinalizer{Finalizer: w.finalizer(func(f *policies.Finalizer) {
		f.Evaluator, f.NotReadyReason, f.Loading = nil, "it is being fetched", true
	})})
	o := w.createPending()
	w.reconcile(o)
	w.wantOutcome(Waiting, "waiting for the module: it is being fetched")
	w.wantFinalizer(o)
	w.controller.update(was)
	w.module.returns(waitVerdict)
	w.wantDelay(w.reconcile(o), time.Hour)
	w.wantOutcome(Waiting, "")
	if n := len(w.module.takeRequests()); n != 1 {
		t.Errorf("evaluated %d times", n)
	}
}

func TestFailure(t *testing.T) {
	fails := func(t *testing.T, kind string) (*testEnv, *unstructured.Unstructured) {
		w := newTestEnv(t)
		w.module.returns(failVerdict)
		o := w.createDeleted(kind, entry)
		w.wantDelay(w.reconcile(o), 0)
		w.wantOutcome(Failed, "nobody can help it; not retried until the object, the spec of ClusterFinalizer f or its module changes")
		w.module.takeRequests()
		return w, o
	}
	wantEvaluations := func(w *testEnv, o *unstructured.Unstructured, want int) {
		w.Helper()
		w.advance(time.Minute)
		w.reconcile(o)
		if n := len(w.module.takeRequests()); n != want {
			w.Errorf("evaluated %d times, want %d", n, want)
		}
	}
	t.Run("persists across restarts", func(t *testing.T) {
		w, o := fails(t, "ConfigMap")
		wantEvaluations(w, o, 0)
		w.restart(w.finalizer())
		wantEvaluations(w, o, 0)
		w.wantOutcome(Failed, "nobody can help it; not retried until the object, the spec of ClusterFinalizer f or its module changes")
	})
	t.Run("of a Role lasts until a restart (A-16)", func(t *testing.T) {
		w, o := fails(t, "Role")
		wantEvaluations(w, o, 0)
		if got := w.api.get(o).GetAnnotations(); len(got) != 0 {
			t.Errorf("annotated: %v", got)
		}
		w.restart(w.finalizer())
		wantEvaluations(w, o, 1)
	})
	t.Run("ends when the object changes", func(t *testing.T) {
		w, o := fails(t, "ConfigMap")
		w.api.change(o, label("changed"))
		wantEvaluations(w, o, 1)
	})
	t.Run("is not restored when the change is reverted", func(t *testing.T) {
		w, o := fails(t, "ConfigMap")
		w.module.returns(waitVerdict)
		w.api.change(o, label("changed"))
		wantEvaluations(w, o, 1)
		w.api.change(o, func(o *unstructured.Unstructured) { o.SetLabels(nil) })
		wantEvaluations(w, o, 1)
		w.wantOutcome(Waiting, "")
	})
	for name, change := range map[string]func(*policies.Finalizer){
		"the resource":       func(f *policies.Finalizer) { f.Generation++ },
		"the module":         func(f *policies.Finalizer) { f.Digest = "another" },
		"the resource's UID": func(f *policies.Finalizer) { f.UID = "another" },
	} {
		t.Run("ends with a change of "+name, func(t *testing.T) {
			w, o := fails(t, "ConfigMap")
			w.controller.update(activeFinalizer{Finalizer: w.finalizer(change)})
			wantEvaluations(w, o, 1)
		})
	}
}

func TestState_SurvivesRestartsAndIsRemovedWithTheFinalizer(t *testing.T) {
	w := newTestEnv(t)
	w.module.returns(hostabi.Verdict{Decision: hostabi.DecisionWait, State: json.RawMessage(`{"a": 1}`)})
	o := w.createDeleted("ConfigMap", entry, "example.com/other")
	w.reconcile(o)
	w.restart(w.finalizer())
	w.module.returns(doneVerdict)
	w.reconcile(o)
	requests := w.module.takeRequests()
	if last := requests[len(requests)-1]; string(last.State) != `{"a":1}` || last.Attempt != 2 || last.IdempotencyKey != requests[0].IdempotencyKey {
		t.Errorf("state %s, attempt %d, key %s after %s", last.State, last.Attempt, last.IdempotencyKey, requests[0].IdempotencyKey)
	}
	live := w.api.get(o)
	if diff := cmp.Diff([]string{"example.com/other"}, live.GetFinalizers()); diff != "" || len(live.GetAnnotations()) != 0 {
		t.Errorf("left: %v %s", live.GetAnnotations(), diff)
	}
}

func TestMonitor_WritesNothing(t *testing.T) {
	for name, v := range map[string]hostabi.Verdict{
		"Done": doneVerdict, "Fail": failVerdict, "Wait": {Decision: hostabi.DecisionWait, State: json.RawMessage(`1`)},
		"Act": {Decision: hostabi.DecisionAct, State: json.RawMessage(`1`)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv(t, func(f *policies.Finalizer) { f.Enforce, f.Attach = false, true })
			w.module.returns(v)
			w.reconcile(w.createPending())
			if n := len(w.module.takeRequests()); n == 0 {
				t.Error("not evaluated")
			}
			w.reconcile(w.api.create(newObject("ConfigMap", "ns", "live")))
			if n := w.api.countRequests(http.MethodPatch); n != 0 {
				t.Errorf("written %d times", n)
			}
		})
	}
}

func TestModule_ThatTriggersItselfBacksOff(t *testing.T) {
	w := newTestEnv(t)
	o := w.createPending()
	w.execute = func(hostabi.Intent) hostabi.Result {
		w.api.change(o, label("at-"+w.now().Format("150405")))
		return hostabi.Result{}
	}
	w.module.respond = func(r hostabi.Request) (hostabi.Verdict, error) {
		if r.Round > 1 {
			return waitVerdict, nil
		}
		return hostabi.Verdict{Decision: hostabi.DecisionAct, Intents: []hostabi.Intent{{ID: "a", Patch: &hostabi.PatchIntent{}}}}, nil
	}
	w.reconcile(o)
	var got []time.Duration
	for range 8 {
		after := w.reconcile(o)
		got = append(got, after)
		w.advance(after)
		w.reconcile(o)
	}
	want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60}
	for i := range want {
		want[i] *= time.Second
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("delays (-want +got):\n%s", diff)
	}
}

func TestModule_IsEvaluatedAfterChangesByOthers(t *testing.T) {
	w := newTestEnv(t)
	w.module.returns(waitVerdict)
	o := w.createPending()
	for _, name := range []string{"a", "b", "c", "d"} {
		w.reconcile(o)
		w.api.change(o, label(name))
		w.wantDelay(w.reconcile(o), time.Second) // minimum interval
		w.advance(time.Second)
	}
	w.reconcile(o)
	if n := len(w.module.takeRequests()); n != 5 {
		t.Errorf("evaluated %d times", n)
	}
}

func TestModule_ThatExceedsRoundsIsAtFault(t *testing.T) {
	w := newTestEnv(t)
	w.module.returns(hostabi.Verdict{Decision: hostabi.DecisionAct})
	o := w.createPending()
	w.wantDelay(w.reconcile(o), time.Second)
	w.wantOutcome(Fault, "after 16 rounds: ")
	w.wantFinalizer(o)
}
