package policies

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/test/pins"
)

const done = `finalize := {"decision": "Done", "reason": "nothing to do"}`

func TestAFinalizerIsPutOnObjectsAndTakenOffOnceItsModuleIsDone(t *testing.T) {
	w := newWorld(t)
	before := w.make("before")
	f := w.finalizer("done", done, "attach: true")
	w.carries(before, w.entry("done"))
	after := w.make("after")
	w.carries(after, w.entry("done"))
	w.says(f, "Attached", metav1.ConditionTrue, "AfterCreation", "")
	w.delete(before)
	w.delete(after)
	w.goes(before, after)
	w.status(f, "released", 2)
	w.status(f, "pending", 0)
	e := w.decided(after, "FinalizerDone")
	if e.How != w.entry("done") || e.Result != "Done" || e.Policy != "Finalizer "+w.ns+"/done" || len(e.Asked) != 1 {
		t.Errorf("recorded: %+v", e)
	}
}

func TestAClustersFinalizerIsThereAsSoonAsTheObjectIs(t *testing.T) {
	w := newWorld(t)
	w.apply(`
kind: Namespace
metadata: {name: NS, labels: {finalized: NS}}`)
	w.policy(`
kind: ClusterPolicyModule
metadata: {name: NS}
spec: {rego: {inline: "package gleaner\nfinalize := {\"decision\": \"Done\"}"}}`)
	f := w.policy(`
kind: ClusterFinalizer
metadata: {name: NS}
spec:
  finalizer: NS.example.com/done
  resources: [{apiGroups: [""], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {finalized: NS}}
  objectSelector: {matchExpressions: [{key: plain, operator: DoesNotExist}]}
  module: {name: NS}
  mode: Enforce
  attach: true`)
	w.says(f, "Attached", metav1.ConditionTrue, "Attached", "")
	w.eventually(func() error {
		o := w.make("at-once")
		defer w.remove(o)
		if !slices.Contains(o.GetFinalizers(), w.ns+".example.com/done") {
			return errorf("created with finalizers %v", o.GetFinalizers())
		}
		return nil
	})
	plain := w.object("ConfigMap", "plain", map[string]string{"plain": ""})
	if got := plain.GetFinalizers(); len(got) != 0 {
		t.Errorf("what is not selected has finalizers %v", got)
	}
}

// The API server refuses objects of a type that it has not looked at, whatever the
// failure policy, where an admission policy would change them.
func TestObjectsOfANewTypeAreNotRefusedForTheFinalizerThatTheyAreToHave(t *testing.T) {
	w := newWorld(t)
	w.policy(`
kind: ClusterPolicyModule
metadata: {name: NS}
spec: {rego: {inline: "package gleaner\nfinalize := {\"decision\": \"Done\"}"}}`)
	f := w.policy(`
kind: ClusterFinalizer
metadata: {name: NS}
spec:
  finalizer: new.example.com/done
  resources: [{apiGroups: [new.example.com], resources: [things]}]
  module: {name: NS}
  mode: Enforce
  attach: true`)
	w.says(f, "Attached", metav1.ConditionTrue, "Late", "things.new.example.com is not served yet")
	w.apply(`
kind: CustomResourceDefinition
metadata: {name: things.new.example.com}
spec:
  group: new.example.com
  names: {kind: Thing, plural: things}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]`)
	made, known := 0, false
	w.eventually(func() error {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "new.example.com/v1", "kind": "Thing", "metadata": map[string]any{"generateName": "thing-"}}}
		_, err := w.client(o).Create(t.Context(), o, metav1.CreateOptions{})
		switch {
		case err == nil:
			made, known = made+1, true
		case known || !apierrors.IsNotFound(err): // it is served a moment after it was defined
			t.Fatalf("after %d were created: %v", made, err)
		}
		if c := w.condition(w.get(f), "Attached"); c.Reason != "Attached" {
			return errorf("%s: %s", c.Reason, c.Message)
		}
		return nil
	})
	things, err := w.objects.Resource(resources["Thing"]).Namespace(w.ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range things.Items {
		w.carries(&o, "new.example.com/done")
	}
	if err := w.objects.Resource(resources["Thing"]).Namespace(w.ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, o := range things.Items {
		w.goes(&o)
	}
}

func TestWithoutAttachOnlyThoseAreServedThatHaveIt(t *testing.T) {
	w := newWorld(t)
	f := w.finalizer("done", done, "")
	plain, has := w.make("plain"), w.carrying("has", w.entry("done"))
	w.delete(has)
	w.goes(has)
	w.status(f, "released", 1)
	if got := w.get(plain).GetFinalizers(); len(got) != 0 {
		t.Errorf("put on: %v", got)
	}
	w.says(f, "Attached", metav1.ConditionFalse, "NotWanted", "attach: true")
}

func TestFinalizersRunInTheOrderOfAfter(t *testing.T) {
	w := newWorld(t)
	last := w.finalizer("last", done, "after: ["+w.entry("first")+"]")
	first := w.finalizer("first", `finalize := {"decision": "Wait", "after": "1h"}`, "")
	o := w.carrying("o", w.entry("last"), w.entry("first"))
	w.delete(o)
	w.eventually(func() error {
		for _, e := range w.collector.Records(o.GetUID()) {
			if e.How == w.entry("last") && strings.Contains(e.Because, w.entry("first")) {
				return nil
			}
		}
		return errorf("%s", w.decisions(o))
	})
	w.carries(o, w.entry("last"), w.entry("first"))
	w.status(last, "pending", 1)
	w.status(first, "pending", 1)
	w.module("first", done)
	w.goes(o)
	w.status(last, "released", 1)
}

const waitsForLabel = `
finalize := {"decision": "Done"} if input.object.metadata.labels.go
else := {"decision": "Wait", "after": "1h", "reason": "it has no label go"}
`

func TestAWaitEndsAtOnceWithAChangeOf(t *testing.T) {
	for name, change := range map[string]func(w *world, f, o *unstructured.Unstructured){
		"the object": func(w *world, _, o *unstructured.Unstructured) {
			w.patch(o, `{"metadata": {"labels": {"go": "yes"}}}`)
		},
		"the module": func(w *world, _, _ *unstructured.Unstructured) { w.module("waits", done) },
		"the finalizer's module": func(w *world, f, _ *unstructured.Unstructured) {
			w.module("other", done)
			w.patch(f, `{"spec": {"module": {"name": "other", "digest": "`+pins.Of("package gleaner\n\n"+done)+`"}}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			f := w.finalizer("waits", waitsForLabel, w.seeing())
			o := w.carrying("o", w.entry("waits"))
			w.delete(o)
			w.kept(o, "FinalizerWaits")
			change(w, f, o)
			w.goes(o)
		})
	}
}

func TestAWaitIsAskedAgainWhenItIsOver(t *testing.T) {
	w := newWorld(t)
	w.finalizer("waits", `
finalize := {"decision": "Done"} if input.attempt == 3
else := {"decision": "Wait", "after": "20ms"}`, "")
	o := w.carrying("o", w.entry("waits"))
	w.delete(o)
	w.goes(o)
	if n := len(w.collector.Records(o.GetUID())); n == 0 {
		t.Error("nothing is recorded")
	}
}

func TestAFaultKeepsTheObjectAndIsMended(t *testing.T) {
	w := newWorld(t)
	f := w.finalizer("faulty", `finalize := {"decision": "Maybe"}`, "")
	o := w.carrying("o", w.entry("faulty"))
	w.delete(o)
	w.kept(o, "FinalizerAtFault")
	s := w.stuck(f, o, "Fault", "Maybe")
	if s["nextRetry"] == nil {
		t.Errorf("it is not tried again: %v", s)
	}
	w.module("faulty", done)
	w.goes(o)
	w.status(f, "stuckCount", 0)
}

func TestAFinalizerWithoutAModuleKeepsItsObjects(t *testing.T) {
	w := newWorld(t)
	f := w.policy(`
kind: Finalizer
metadata: {name: none}
spec: {resources: [{apiGroups: [""], resources: [configmaps]}], module: {name: later, digest: ` + pins.Of("package gleaner\n\n"+done) + `}, needs: Reference, mode: Enforce}`)
	w.says(f, "ModuleReady", metav1.ConditionFalse, "NotFound", "there is no PolicyModule")
	o := w.carrying("o", w.entry("none"))
	w.delete(o)
	w.stuck(f, o, "NotReady", "there is no PolicyModule")
	w.module("later", done)
	w.goes(o)
}

func TestAFailStandsUntilSomethingChanges(t *testing.T) {
	w := newWorld(t)
	f := w.finalizer("fails", `
finalize := {"decision": "Done"} if input.object.metadata.labels.go
else := {"decision": "Fail", "reason": sprintf("nobody can help it, %d", [input.attempt])}`, w.seeing())
	o := w.carrying("o", w.entry("fails"))
	w.delete(o)
	s := w.stuck(f, o, "Failed", "nobody can help it, 1")
	if s["nextRetry"] != nil {
		t.Errorf("it is tried again at %v", s["nextRetry"])
	}
	w.patch(o, `{"metadata": {"labels": {"touched": "yes"}}}`)
	w.stuck(f, o, "Failed", "nobody can help it, 2")
	w.patch(o, `{"metadata": {"labels": {"go": "yes"}}}`)
	w.goes(o)
}

func TestAfterItsDeadlineAnObject(t *testing.T) {
	const waits = `finalize := {"decision": "Wait", "after": "1h", "reason": "for ever", "state": {"deadline": input.deadline}}`
	t.Run("is held and reported", func(t *testing.T) {
		w := newWorld(t)
		f := w.finalizer("waits", waits, "deadline: 1s")
		o := w.carrying("o", w.entry("waits"))
		w.delete(o)
		s := w.stuck(f, o, "DeadlineExceeded", "its deadline of 1s is over (onDeadline: Hold)")
		if s["deadline"] == nil {
			t.Errorf("it does not say when: %v", s)
		}
		w.carries(o, w.entry("waits"))
	})
	t.Run("is released where that is asked for", func(t *testing.T) {
		w := newWorld(t)
		w.finalizer("waits", waits, "deadline: 1s\nonDeadline: Release")
		o := w.carrying("o", w.entry("waits"))
		w.delete(o)
		w.goes(o)
		if e := w.decided(o, "FinalizerReleased"); !strings.Contains(e.Because, "its deadline of 1s is over") {
			t.Errorf("recorded: %+v", e)
		}
	})
}

func TestARemovedFinalizer(t *testing.T) {
	const waits = `finalize := {"decision": "Wait", "after": "1h"}`
	t.Run("stays until no object has it", func(t *testing.T) {
		w := newWorld(t)
		f := w.finalizer("stays", waits, "")
		o := w.carrying("o", w.entry("stays"))
		w.carries(f, "gleaner.dev/in-use")
		w.delete(f)
		w.says(f, "Enforcing", metav1.ConditionTrue, "Removed", "which 1 have")
		w.carries(o, w.entry("stays"))
		w.delete(o)
		w.module("stays", done)
		w.goes(o, f)
	})
	t.Run("is taken off all where that is asked for", func(t *testing.T) {
		w := newWorld(t)
		f := w.finalizer("goes", waits, "onRemoval: Release")
		o, live := w.carrying("o", w.entry("goes")), w.carrying("live", w.entry("goes"))
		w.carries(f, "gleaner.dev/in-use")
		w.delete(o)
		w.kept(o, "FinalizerWaits")
		w.delete(f)
		w.goes(o, f)
		w.carries(live)
	})
}

func TestTwoFinalizersOfOneNameAreBothNotServed(t *testing.T) {
	w := newWorld(t)
	w.policy(`
kind: ClusterPolicyModule
metadata: {name: NS}
spec: {rego: {inline: "package gleaner\nfinalize := {\"decision\": \"Done\"}"}}`)
	const spec = `
kind: ClusterFinalizer
metadata: {name: %s.NS}
spec: {finalizer: NS.example.com/x, resources: [{apiGroups: [""], resources: [configmaps]}], module: {name: NS}, mode: Enforce}`
	a, b := w.policy(fmt.Sprintf(spec, "a")), w.policy(fmt.Sprintf(spec, "b"))
	w.says(a, "Accepted", metav1.ConditionFalse, "NameTaken", "ClusterFinalizer b."+w.ns)
	w.says(b, "Accepted", metav1.ConditionFalse, "NameTaken", "ClusterFinalizer a."+w.ns)
	o := w.carrying("o", w.ns+".example.com/x")
	w.delete(o)
	w.kept(o, "FinalizerNotReady")
	w.remove(b)
	w.goes(o)
}

func TestInMonitorModeAFinalizerIsAskedAndNothingIsDone(t *testing.T) {
	w := newWorld(t)
	f := w.finalizer("watches", done, "attach: true")
	w.patch(f, `{"spec": {"mode": "Monitor"}}`)
	w.policyObserved(f)
	plain, o := w.make("plain"), w.carrying("o", w.entry("watches"))
	w.delete(o)
	w.kept(o, "FinalizerWatched")
	w.stuck(f, o, "Monitor", "the module says Done")
	w.carries(plain)
	w.patch(f, `{"spec": {"mode": "Enforce"}}`)
	w.goes(o)
	w.carries(plain, w.entry("watches"))
}

func TestAFinalizerThatIsNotForAnObjectSaysSo(t *testing.T) {
	w := newWorld(t)
	f := w.finalizer("picky", done, "objectSelector: {matchLabels: {mine: \"yes\"}}")
	o := w.carrying("o", w.entry("picky"))
	w.delete(o)
	w.stuck(f, o, "NotSelected", "does not select it")
	w.patch(o, `{"metadata": {"labels": {"mine": "yes"}}}`)
	w.goes(o)
}

func TestStateAndIdempotencyKeyOutliveTheOperator(t *testing.T) {
	o := newOperation(t)
	o.finalizer("remembers", `
finalize := {"decision": "Done", "reason": "released"} if {
	input.object.metadata.labels.go
	input.state.key == input.idempotencyKey
	input.attempt > 1
} else := {"decision": "Wait", "after": "1h", "state": {"key": input.idempotencyKey}} if not input.state
else := {"decision": "Wait", "after": "1h"}`, o.seeing())
	object := o.carrying("o", o.entry("remembers"))
	o.delete(object)
	o.eventually(func() error {
		if text := o.get(object).GetAnnotations()["gleaner.dev/finalizers"]; !strings.Contains(text, "/finalize/") {
			return errorf("remembered: %s", text)
		}
		return nil
	})
	o.end()
	o.patch(object, `{"metadata": {"labels": {"go": "yes"}}}`)
	o.start()
	o.goes(object)
}

func TestWhatAnotherObjectRemembersCountsForNothing(t *testing.T) {
	w := newWorld(t)
	w.finalizer("remembers", `
finalize := {"decision": "Fail"} if input.state
else := {"decision": "Done"}`, "")
	o := w.carrying("o", w.entry("remembers"))
	w.patch(o, fmt.Sprintf(`{"metadata": {"annotations": {"gleaner.dev/finalizers": %s}}}`,
		quoted(fmt.Sprintf(`{"uid": "another", "by": {%q: {"state": {"a": 1}}}}`, w.entry("remembers")))))
	w.delete(o)
	w.goes(o)
}
