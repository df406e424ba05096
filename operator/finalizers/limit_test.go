package finalizers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/writelimit"
)

// countingModule is a module that waits briefly, with another state each time.
func countingModule(r hostabi.Request) (hostabi.Verdict, error) {
	state := json.RawMessage(fmt.Sprint(r.Attempt))
	return hostabi.Verdict{Decision: hostabi.DecisionWait, After: hostabi.Duration(time.Millisecond), State: state}, nil
}

// runForMinute reconciles objects for a minute, each one when it is due.
func (w *testEnv) runForMinute(objects ...*unstructured.Unstructured) {
	w.Helper()
	due, end := map[types.UID]time.Time{}, w.now().Add(time.Minute)
	for {
		next := end
		for _, o := range objects {
			if at := due[o.GetUID()]; !at.After(w.now()) {
				due[o.GetUID()] = w.now().Add(max(w.reconcile(o), time.Millisecond))
			}
			if at := due[o.GetUID()]; at.Before(next) {
				next = at
			}
		}
		if !next.Before(end) {
			return
		}
		w.advance(next.Sub(w.now()))
	}
}

// A wait of 1ms with another state each time was written 129 times a second.
func TestWait_LastsAtLeastASecond(t *testing.T) {
	w := newTestEnv(t)
	w.module.respond = countingModule
	o := w.createPending()
	w.runForMinute(o)
	if n := w.api.countRequests(http.MethodPatch); n < 50 || n > 61 {
		t.Errorf("the state of one object was written %d times in a minute; want about 60", n)
	}
	w.wantFinalizer(o)
}

func TestStateWrites_AreRateLimited(t *testing.T) {
	w := newTestEnv(t)
	w.runner.StateLimiter = writelimit.New(writelimit.Rate{PerSecond: 2, Burst: 5}, writelimit.Rate{PerSecond: 1, Burst: 5})
	w.module.respond = countingModule
	var objects []*unstructured.Unstructured
	for i := range 20 {
		o := w.api.create(deletedConfigMap(fmt.Sprintf("o%d", i)))
		objects = append(objects, o)
	}
	w.runForMinute(objects...)
	if n := w.api.countRequests(http.MethodPatch); n < 30 || n > 65 {
		t.Errorf("the states of 20 objects were written %d times in a minute; want 1 a second, and 5 at first", n)
	}
	var limited *Stuck
	for _, s := range w.controller.progress().Stuck {
		if s.Reason == "RateLimited" {
			limited = &s
		}
	}
	if limited == nil || limited.NextRetry.IsZero() {
		t.Errorf("the status names no object that waits for the rate: %+v", w.controller.progress())
	}
	for _, o := range objects {
		w.wantFinalizer(o)
	}
}

func TestIntents_AreRateLimited(t *testing.T) {
	w := newTestEnv(t)
	w.runner.EffectLimiter = writelimit.New(writelimit.Rate{PerSecond: 1, Burst: 10}, writelimit.Rate{PerSecond: 1, Burst: 10})
	done := 0
	w.execute = func(hostabi.Intent) hostabi.Result { done++; return hostabi.Result{} }
	w.module.respond = func(r hostabi.Request) (hostabi.Verdict, error) {
		if r.Round > 2 {
			return hostabi.Verdict{Decision: hostabi.DecisionWait, After: hostabi.Duration(time.Millisecond)}, nil
		}
		v := hostabi.Verdict{Decision: hostabi.DecisionAct}
		for i := range 2 {
			v.Intents = append(v.Intents, hostabi.Intent{ID: fmt.Sprint(r.Round, i), HTTP: &hostabi.HTTPIntent{Method: "POST"}})
		}
		return v, nil
	}
	o := w.createPending()
	w.runForMinute(o)
	if done < 40 || done > 76 || done%4 != 0 {
		t.Errorf("%d requests were sent in a minute; want about one a second, and whole attempts of four", done)
	}
	w.wantOutcome(RateLimited, "")
	w.wantFinalizer(o)
}

// Removing finalizers is not limited: it happens once for each object.
func TestRemoval_IsNotLimited(t *testing.T) {
	w := newTestEnv(t)
	none := writelimit.New(writelimit.Rate{PerSecond: 0.001, Burst: 1}, writelimit.Rate{PerSecond: 0.001, Burst: 1})
	w.runner.StateLimiter, w.runner.EffectLimiter = none, none
	for i := range 20 {
		if w.reconcile(w.api.create(deletedConfigMap(fmt.Sprintf("o%d", i)))); w.lastOutcome().Reason != Done {
			t.Fatalf("object %d was not released", i)
		}
	}
}

func deletedConfigMap(name string) *unstructured.Unstructured {
	o := newObject("ConfigMap", "ns", name, entry)
	o.SetDeletionTimestamp(&metav1.Time{Time: start})
	return o
}
