package finalizers

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/policies"
)

// twoIntents is a module that requests two intents, saves a state, and returns Done when both
// are carried out.
func twoIntents(r hostabi.Request) (hostabi.Verdict, error) {
	if len(r.Results) == 2 {
		return doneVerdict, nil
	}
	post := &hostabi.HTTPIntent{Method: "POST", URL: "https://example.com/"}
	return hostabi.Verdict{Decision: hostabi.DecisionAct, State: []byte(`{"begun":true}`), Intents: []hostabi.Intent{{ID: "a", HTTP: post}, {ID: "b", HTTP: post}}}, nil
}

func TestResourceChange_AppliesDuringEvaluation(t *testing.T) {
	monitor := func(f *policies.Finalizer) { f.Generation, f.Enforce = 2, false }
	t.Run("no further intents are carried out", func(t *testing.T) {
		w := newTestEnv(t)
		w.module.respond = twoIntents
		executed := 0
		w.execute = func(hostabi.Intent) hostabi.Result {
			executed++
			w.controller.update(activeFinalizer{Finalizer: w.finalizer(monitor)})
			return hostabi.Result{}
		}
		o := w.createPending()
		w.wantDelay(w.reconcile(o), restartDelay)
		if n := w.lastOutcome(); executed != 1 || len(n.Intents) != 1 || len(n.Exchanges) != 1 {
			t.Errorf("%d intents carried out, outcome: %+v", executed, n)
		}
		w.wantFinalizer(o)
		w.reconcile(o)
		w.wantOutcome(Monitored, "mode: Monitor")
		w.wantFinalizer(o)
	})
	t.Run("an outdated Done does not remove the finalizer", func(t *testing.T) {
		w := newTestEnv(t)
		w.module.respond = func(hostabi.Request) (hostabi.Verdict, error) {
			w.controller.update(activeFinalizer{Finalizer: w.finalizer(monitor)})
			return doneVerdict, nil
		}
		o := w.createPending()
		w.reconcile(o)
		w.wantFinalizer(o)
	})
}

func TestIntents_StopWhenTheObjectIsGone(t *testing.T) {
	w := newTestEnv(t)
	w.execute = func(hostabi.Intent) hostabi.Result {
		t.Error("it was carried out: another object by the name may use the same")
		return hostabi.Result{}
	}
	o := w.createPending()
	w.module.respond = func(r hostabi.Request) (hostabi.Verdict, error) {
		w.api.remove(o)
		w.api.create(newObject("ConfigMap", "ns", "o"))
		return twoIntents(r)
	}
	w.wantDelay(w.reconcile(o), restartDelay)
	w.wantDelay(w.reconcile(o), 0)
	if p := w.controller.progress(); p.Pending != 0 {
		t.Errorf("progress: %+v", p)
	}
}

func TestDeadline_DoesNotReleaseUnselectedObjects(t *testing.T) {
	for name, change := range map[string]func(*policies.Finalizer){
		"by its resource": func(f *policies.Finalizer) { f.Rules[0].Resources = []string{"secrets"} },
		"by its labels":   func(f *policies.Finalizer) { f.ObjectSelector = labels.SelectorFromSet(labels.Set{"a": "b"}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv(t, change, func(f *policies.Finalizer) { f.ReleaseAtDeadline, f.Deadline = true, time.Minute })
			w.advance(time.Hour)
			o := w.createPending()
			w.reconcile(o)
			w.wantOutcome(NotSelected, "does not select the object")
			w.wantFinalizer(o)
		})
	}
}

func TestRemovedFinalizer_WaitsForUnselectedObjects(t *testing.T) {
	w := newTestEnv(t, func(f *policies.Finalizer) { f.Deleting, f.Rules[0].Resources = true, []string{"secrets"} })
	o := w.createPending()
	w.reconcile(o)
	if _, err := w.controller.resync(t.Context(), false); err != nil || w.controller.progress().Counted {
		t.Fatalf("%v, progress: %+v", err, w.controller.progress())
	}
	w.api.remove(o)
	w.reconcile(o)
	if _, err := w.controller.resync(t.Context(), false); err != nil || !w.controller.progress().Counted {
		t.Errorf("%v, progress: %+v", err, w.controller.progress())
	}
}

func TestRemovedFinalizer_WaitsForDiscovery(t *testing.T) {
	w := newTestEnv(t, func(f *policies.Finalizer) { f.Deleting, f.Rules[0].Groups = true, []string{"", "example.com"} })
	failed := map[schema.GroupVersion]error{{Group: "example.com", Version: "v1"}: errors.New("its API server is down")}
	list := &metav1.APIResourceList{GroupVersion: "v1"}
	w.types = catalog.Build(nil, []*metav1.APIResourceList{list}, catalog.Settings{Failed: failed})
	if _, err := w.controller.resync(t.Context(), true); err == nil || w.controller.progress().Counted {
		t.Fatalf("%v, progress: %+v", err, w.controller.progress())
	}
	w.types = catalog.Build(nil, []*metav1.APIResourceList{list}, catalog.Settings{})
	if _, err := w.controller.resync(t.Context(), true); err != nil || !w.controller.progress().Counted {
		t.Errorf("%v, progress: %+v", err, w.controller.progress())
	}
}
