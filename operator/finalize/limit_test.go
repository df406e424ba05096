package finalize

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

// counter is a module that waits for a moment with another state each time.
func counter(r hostabi.Request) (hostabi.Verdict, error) {
	state := json.RawMessage(fmt.Sprint(r.Attempt))
	return hostabi.Verdict{Decision: hostabi.DecisionWait, After: hostabi.Duration(time.Millisecond), State: state}, nil
}

// minute visits objects for a minute, each of them when it says.
func (w *world) minute(objects ...*unstructured.Unstructured) {
	w.Helper()
	due, end := map[types.UID]time.Time{}, w.now().Add(time.Minute)
	for {
		next := end
		for _, o := range objects {
			if at := due[o.GetUID()]; !at.After(w.now()) {
				due[o.GetUID()] = w.now().Add(max(w.visit(o), time.Millisecond))
			}
			if at := due[o.GetUID()]; at.Before(next) {
				next = at
			}
		}
		if !next.Before(end) {
			return
		}
		w.pass(next.Sub(w.now()))
	}
}

// A wait of 1ms with another state each time was written 129 times a second.
func TestWait_OfAMillisecondLastsASecond(t *testing.T) {
	w := newWorld(t)
	w.module.say = counter
	o := w.waiting()
	w.minute(o)
	if n := w.api.asks(http.MethodPatch); n < 50 || n > 61 {
		t.Errorf("the state of one object was written %d times in a minute; want about 60", n)
	}
	w.keeps(o)
}

func TestStates_AreWrittenAtABoundedRate(t *testing.T) {
	w := newWorld(t)
	w.runner.States = writelimit.New(writelimit.Rate{PerSecond: 2, Burst: 5}, writelimit.Rate{PerSecond: 1, Burst: 5})
	w.module.say = counter
	var objects []*unstructured.Unstructured
	for i := range 20 {
		o := w.api.create(deletedAs(fmt.Sprintf("o%d", i)))
		objects = append(objects, o)
	}
	w.minute(objects...)
	if n := w.api.asks(http.MethodPatch); n < 30 || n > 65 {
		t.Errorf("the states of 20 objects were written %d times in a minute; want 1 a second, and 5 at first", n)
	}
	var limited *Stuck
	for _, s := range w.server.progress().Stuck {
		if s.Reason == "RateLimited" {
			limited = &s
		}
	}
	if limited == nil || limited.Retry.IsZero() {
		t.Errorf("the status names no object that waits for the rate: %+v", w.server.progress())
	}
	for _, o := range objects {
		w.keeps(o)
	}
}

func TestIntents_AreCarriedOutAtABoundedRate(t *testing.T) {
	w := newWorld(t)
	w.runner.Effects = writelimit.New(writelimit.Rate{PerSecond: 1, Burst: 10}, writelimit.Rate{PerSecond: 1, Burst: 10})
	done := 0
	w.does = func(hostabi.Intent) hostabi.Result { done++; return hostabi.Result{} }
	w.module.say = func(r hostabi.Request) (hostabi.Verdict, error) {
		if r.Round > 2 {
			return hostabi.Verdict{Decision: hostabi.DecisionWait, After: hostabi.Duration(time.Millisecond)}, nil
		}
		v := hostabi.Verdict{Decision: hostabi.DecisionAct}
		for i := range 2 {
			v.Intents = append(v.Intents, hostabi.Intent{ID: fmt.Sprint(r.Round, i), HTTP: &hostabi.HTTPIntent{Method: "POST"}})
		}
		return v, nil
	}
	o := w.waiting()
	w.minute(o)
	if done < 40 || done > 76 || done%4 != 0 {
		t.Errorf("%d requests were sent in a minute; want about one a second, and whole attempts of four", done)
	}
	w.is(Limited, "")
	w.keeps(o)
}

// Taking finalizers off is not limited: it happens once for each object, and nobody is
// to wait for it.
func TestRemoval_IsNotLimited(t *testing.T) {
	w := newWorld(t)
	none := writelimit.New(writelimit.Rate{PerSecond: 0.001, Burst: 1}, writelimit.Rate{PerSecond: 0.001, Burst: 1})
	w.runner.States, w.runner.Effects = none, none
	for i := range 20 {
		if w.visit(w.api.create(deletedAs(fmt.Sprintf("o%d", i)))); w.told().Reason != Done {
			t.Fatalf("object %d was not released", i)
		}
	}
}

func deletedAs(name string) *unstructured.Unstructured {
	o := object("ConfigMap", "ns", name, entry)
	o.SetDeletionTimestamp(&metav1.Time{Time: start})
	return o
}
