package retainer_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/retainer"
)

// asking is how the policies with the hook retain are evaluated.
type asking struct {
	answer    func(evaluate.Input) evaluate.Result // nil: there are none
	evaluated []question
}

type question struct {
	name string
	at   time.Time
}

// Evaluate implements retainer.Evaluator.
func (w *world) Evaluate(_ context.Context, q evaluate.Input) (evaluate.Result, error) {
	w.mu.Lock()
	w.evaluated = append(w.evaluated, question{q.Facts.Object.Name, time.Now()})
	answer := w.answer
	w.mu.Unlock()
	if answer == nil {
		return evaluate.Result{Verdict: hostabi.Verdict{Decision: hostabi.DecisionRemove}}, nil
	}
	return answer(q), nil
}

// Lookup implements evaluate.Graph.
func (*world) Lookup(graph.ID) (graph.View, bool) { return graph.View{}, false }

func (w *world) setAnswer(f func(evaluate.Input) evaluate.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = f
}

// changePolicies has others than retention policies change.
func (w *world) changePolicies() {
	all, _ := w.policies.Load()
	w.policies.Store(all)
}

// questions returns when policies were evaluated about an object, since a time.
func (w *world) questions(name string, since time.Time) (after []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.evaluated {
		if q.name == name {
			after = append(after, q.at.Sub(since).Round(time.Second))
		}
	}
	return after
}

// evaluations returns how often policies were evaluated.
func (w *world) evaluations() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.evaluated)
}

func saying(d hostabi.Decision, after time.Duration) evaluate.Result {
	return evaluate.Result{Verdict: hostabi.Verdict{Decision: d, After: hostabi.Duration(after), Reason: "because"}}
}

func TestRetainHook_AnObjectThatAPolicyKeepsStays_AndThePolicyIsEvaluatedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		began := time.Now()
		w.setAnswer(func(q evaluate.Input) evaluate.Result {
			if *q.Retention != (hostabi.Retention{Policy: "old", Namespace: "shop", Limit: "MaxAge"}) || q.Hook != hostabi.HookRetain || q.Object == nil {
				t.Errorf("evaluated %+v of %+v", q.Hook, q.Retention)
			}
			if q.Facts.Object.Name == "kept" && time.Since(began) < 3*time.Hour {
				return saying(hostabi.DecisionKeep, 0)
			}
			return saying(hostabi.DecisionRemove, 0)
		})
		w.put(pod("shop", "kept"), 2*time.Hour)
		w.put(pod("shop", "old"), 2*time.Hour)
		w.apply(map[string]string{"shop/old": oldPods})
		w.run()
		w.expectLeft("Pod", "kept")
		w.status("shop/old", "what is kept", func(s retainer.PolicyStatus) bool {
			return s.KeptByPolicies == 1 && s.Due == 0 && len(s.Next) == 0 && s.KeptBy != "" && s.Failing == 0
		})
		time.Sleep(150 * time.Minute)
		if got, want := w.questions("kept", began), []time.Duration{0, time.Minute, 3 * time.Minute, 7 * time.Minute, 15 * time.Minute, 31 * time.Minute, 63 * time.Minute, 123 * time.Minute}; !slices.Equal(got, want) {
			t.Errorf("evaluated after %v; want %v", got, want)
		}
		time.Sleep(time.Hour)
		w.expectLeft("Pod")
		w.status("shop/old", "nothing kept", func(s retainer.PolicyStatus) bool { return s.KeptByPolicies == 0 && s.Due == 0 })
		w.mu.Lock()
		defer w.mu.Unlock()
		if o := w.outcomes[slices.IndexFunc(w.outcomes, func(o retainer.Outcome) bool { return o.Object.Name == "kept" })]; !o.Kept || o.Err != nil || o.Evaluated.Verdict.Reason != "because" || o.NextAttempt.IsZero() {
			t.Errorf("recorded: %+v", o)
		}
	})
}

func TestRetainHook_APolicyIsEvaluatedAgain_AfterTheTimeThatItSays_OrWhenPoliciesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		began := time.Now()
		w.setAnswer(func(evaluate.Input) evaluate.Result { return saying(hostabi.DecisionKeep, 2*time.Hour) })
		w.put(pod("shop", "kept"), 2*time.Hour)
		w.apply(map[string]string{"shop/old": oldPods})
		w.run()
		time.Sleep(7 * time.Hour)
		if got, want := w.questions("kept", began), []time.Duration{0, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour}; !slices.Equal(got, want) {
			t.Errorf("evaluated after %v; want %v", got, want)
		}
		w.changePolicies()
		w.eventually("it is evaluated again", func() bool { return len(w.questions("kept", began)) == 5 })
		w.setAnswer(nil)
		w.changePolicies()
		w.expectLeft("Pod")
	})
}

// Nothing is removed that a policy may keep, and no other namespace waits for it.
func TestRetainHook_AFaultKeepsTheObjectsOfItsNamespace_AndNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		began := time.Now()
		w.setAnswer(func(q evaluate.Input) evaluate.Result {
			switch {
			case q.Facts.Object.Namespace != "broken":
				return saying(hostabi.DecisionRemove, 0)
			case time.Since(began) > time.Minute:
				return saying(hostabi.DecisionRemove, 0)
			}
			time.Sleep(2 * time.Second) // as a module that hangs
			return evaluate.Result{Fault: errors.New("out of fuel")}
		})
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			w.put(pod("broken", "broken-"+name), 3*time.Hour)
			w.put(pod("shop", "old-"+name), 2*time.Hour)
		}
		w.apply(map[string]string{"all": oldPods})
		w.run()
		time.Sleep(5 * time.Second)
		w.expectLeft("Pod", "broken-a", "broken-b", "broken-c", "broken-d", "broken-e", "broken-f", "broken-g", "broken-h")
		if n := w.evaluations(); n != 9 {
			t.Errorf("%d evaluations in 5 s; want one for the namespace with a fault, and 8 others", n)
		}
		w.status("all", "what fails", func(s retainer.PolicyStatus) bool {
			return s.Failing == 8 && s.Due == 8 && s.Failures > 0 && s.Failure != ""
		})
		time.Sleep(2 * time.Minute)
		w.expectLeft("Pod")
		w.status("all", "no failure", func(s retainer.PolicyStatus) bool { return s.Failing == 0 && s.Due == 0 })
	})
}

func TestRetainHook_ANamespaceWhosePoliciesTakeLong_LeavesTimeToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setAnswer(func(q evaluate.Input) evaluate.Result {
			if q.Facts.Object.Namespace == "slow" {
				time.Sleep(time.Second)
			}
			return saying(hostabi.DecisionRemove, 0)
		})
		for _, name := range []string{"a", "b", "c"} {
			w.put(pod("slow", "slow-"+name), 3*time.Hour)
			w.put(pod("shop", "old-"+name), 2*time.Hour)
		}
		w.apply(map[string]string{"all": oldPods})
		w.run()
		time.Sleep(1500 * time.Millisecond)
		w.expectLeft("Pod", "slow-b", "slow-c")
		time.Sleep(15 * time.Second)
		w.expectLeft("Pod")
	})
}

// P-13: what changes while policies are evaluated is seen before a removal.
func TestP13_RetainHook_WhatChangesInTheMeantimeKeepsTheObject(t *testing.T) {
	configMap := "{kind: ConfigMap, metadata: {namespace: shop, name: settings}}"
	user := "{kind: Pod, metadata: {namespace: shop, name: user}, spec: {volumes: [{name: v, configMap: {name: settings}}]}}"
	for name, change := range map[string]func(*world){
		"the policy is deleted": func(w *world) { w.apply(nil) },
		"the policy is Monitor": func(w *world) {
			w.apply(map[string]string{"shop/old": "{mode: Monitor" + unusedMaps[len("{mode: Enforce"):]})
		},
		"a Pod uses the object": func(w *world) { w.put(user, time.Second) },
		"the object has changed": func(w *world) {
			w.put("{kind: ConfigMap, metadata: {namespace: shop, name: settings}, immutable: true}", time.Second)
		},
		"it is not the leader": func(w *world) { w.gate.Follow() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.setAnswer(func(evaluate.Input) evaluate.Result {
					change(w)
					time.Sleep(time.Second)
					return saying(hostabi.DecisionRemove, 0)
				})
				w.put(configMap, 2*time.Hour)
				w.apply(map[string]string{"shop/old": unusedMaps})
				w.run()
				time.Sleep(10 * time.Second)
				if len(w.questions("settings", time.Now())) == 0 {
					t.Error("no policy was evaluated")
				}
				w.expectLeft("ConfigMap", "settings")
			})
		})
	}
}

// A verdict that is none keeps the object.
func TestRetainHook_WithoutADecision_TheObjectStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setAnswer(func(evaluate.Input) evaluate.Result { return evaluate.Result{} })
		w.put(pod("shop", "old"), 2*time.Hour)
		w.apply(map[string]string{"shop/old": oldPods})
		w.run()
		time.Sleep(time.Hour)
		w.expectLeft("Pod", "old")
	})
}
