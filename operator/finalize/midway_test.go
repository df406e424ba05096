package finalize

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

// acting is a module that asks for two things, leaves something to remember, and is done
// once both are carried out.
func acting(r hostabi.Request) (hostabi.Verdict, error) {
	if len(r.Results) == 2 {
		return isDone, nil
	}
	post := &hostabi.HTTPIntent{Method: "POST", URL: "https://example.com/"}
	return hostabi.Verdict{Decision: hostabi.DecisionAct, State: []byte(`{"begun":true}`), Intents: []hostabi.Intent{{ID: "a", HTTP: post}, {ID: "b", HTTP: post}}}, nil
}

func TestAChangeOfTheResourceMidwayCountsAtOnce(t *testing.T) {
	monitor := func(f *policies.Finalizer) { f.Generation, f.Enforce = 2, false }
	t.Run("no more is carried out", func(t *testing.T) {
		w := newWorld(t)
		w.module.say = acting
		did := 0
		w.does = func(hostabi.Intent) hostabi.Result {
			did++
			w.server.replace(served{Finalizer: w.finalizer(monitor)})
			return hostabi.Result{}
		}
		o := w.waiting()
		w.after(w.visit(o), shortestWait)
		if n := w.told(); did != 1 || len(n.Intents) != 1 || len(n.Exchanges) != 1 {
			t.Errorf("carried out %d, told %+v", did, n)
		}
		w.keeps(o)
		w.visit(o)
		w.is(Watched, "mode: Monitor")
		w.keeps(o)
	})
	t.Run("Done of the module before it lets nothing go", func(t *testing.T) {
		w := newWorld(t)
		w.module.say = func(hostabi.Request) (hostabi.Verdict, error) {
			w.server.replace(served{Finalizer: w.finalizer(monitor)})
			return isDone, nil
		}
		o := w.waiting()
		w.visit(o)
		w.keeps(o)
	})
}

func TestForAnObjectThatIsGoneMidwayNothingMoreIsDone(t *testing.T) {
	w := newWorld(t)
	w.does = func(hostabi.Intent) hostabi.Result {
		t.Error("it was carried out: another object by the name may use the same")
		return hostabi.Result{}
	}
	o := w.waiting()
	w.module.say = func(r hostabi.Request) (hostabi.Verdict, error) {
		w.api.remove(o)
		w.api.create(object("ConfigMap", "ns", "o"))
		return acting(r)
	}
	w.after(w.visit(o), shortestWait)
	w.after(w.visit(o), 0)
	if p := w.server.progress(); p.Pending != 0 {
		t.Errorf("progress: %+v", p)
	}
}

func TestADeadlineLetsNothingGoThatTheFinalizerIsNotFor(t *testing.T) {
	for name, change := range map[string]func(*policies.Finalizer){
		"by its resource": func(f *policies.Finalizer) { f.Rules[0].Resources = []string{"secrets"} },
		"by its labels":   func(f *policies.Finalizer) { f.Objects = labels.SelectorFromSet(labels.Set{"a": "b"}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, change, func(f *policies.Finalizer) { f.FreeAtDeadline, f.Longest = true, time.Minute })
			w.pass(time.Hour)
			o := w.waiting()
			w.visit(o)
			w.is(Unmeant, "does not select it")
			w.keeps(o)
		})
	}
}

func TestARemovedFinalizerStaysForWhatWaitsAndIsNotSelectedAnyMore(t *testing.T) {
	w := newWorld(t, func(f *policies.Finalizer) { f.Removed, f.Rules[0].Resources = true, []string{"secrets"} })
	o := w.waiting()
	w.visit(o)
	if _, err := w.server.lookAtAll(t.Context(), false); err != nil || w.server.progress().Counted {
		t.Fatalf("%v, progress: %+v", err, w.server.progress())
	}
	w.api.remove(o)
	w.visit(o)
	if _, err := w.server.lookAtAll(t.Context(), false); err != nil || !w.server.progress().Counted {
		t.Errorf("%v, progress: %+v", err, w.server.progress())
	}
}

func TestARemovedFinalizerStaysWhileNobodyKnowsWhichTypesItsGroupsHave(t *testing.T) {
	w := newWorld(t, func(f *policies.Finalizer) { f.Removed, f.Rules[0].Groups = true, []string{"", "example.com"} })
	failed := map[schema.GroupVersion]error{{Group: "example.com", Version: "v1"}: errors.New("its API server is down")}
	list := &metav1.APIResourceList{GroupVersion: "v1"}
	w.types = catalog.Build(nil, []*metav1.APIResourceList{list}, catalog.Settings{Failed: failed})
	if _, err := w.server.lookAtAll(t.Context(), true); err == nil || w.server.progress().Counted {
		t.Fatalf("%v, progress: %+v", err, w.server.progress())
	}
	w.types = catalog.Build(nil, []*metav1.APIResourceList{list}, catalog.Settings{})
	if _, err := w.server.lookAtAll(t.Context(), true); err != nil || !w.server.progress().Counted {
		t.Errorf("%v, progress: %+v", err, w.server.progress())
	}
}
