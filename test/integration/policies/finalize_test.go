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

const doneModule = `finalize := {"decision": "Done", "reason": "nothing to do"}`

func TestFinalizer_IsAttached_AndRemovedWhenDone(t *testing.T) {
	w := newEnv(t)
	before := w.createConfigMap("before")
	f := w.applyFinalizer("done", doneModule, "attach: true")
	w.waitForFinalizers(before, w.finalizerName("done"))
	after := w.createConfigMap("after")
	w.waitForFinalizers(after, w.finalizerName("done"))
	w.waitForCondition(f, "Attached", metav1.ConditionTrue, "AfterCreation", "")
	w.delete(before)
	w.delete(after)
	w.waitForDeletion(before, after)
	w.waitForStatus(f, "released", 2)
	w.waitForStatus(f, "pending", 0)
	e := w.waitForDecision(after, "FinalizerDone")
	if e.Detail != w.finalizerName("done") || e.Result != "Done" || e.Policy != "Finalizer "+w.ns+"/done" || len(e.Evaluations) != 1 {
		t.Errorf("recorded: %+v", e)
	}
}

func TestClusterFinalizer_IsAttachedOnCreate(t *testing.T) {
	w := newEnv(t)
	w.apply(`
kind: Namespace
metadata: {name: NS, labels: {finalized: NS}}`)
	w.applyPolicy(`
kind: ClusterPolicyModule
metadata: {name: NS}
spec: {rego: {inline: "package gleaner\nfinalize := {\"decision\": \"Done\"}"}}`)
	f := w.applyPolicy(`
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
	w.waitForCondition(f, "Attached", metav1.ConditionTrue, "Attached", "")
	w.eventually(func() error {
		o := w.createConfigMap("at-once")
		defer w.forceDelete(o)
		if !slices.Contains(o.GetFinalizers(), w.ns+".example.com/done") {
			return errorf("object was created with finalizers %v", o.GetFinalizers())
		}
		return nil
	})
	plain := w.createObject("ConfigMap", "plain", map[string]string{"plain": ""})
	if got := plain.GetFinalizers(); len(got) != 0 {
		t.Errorf("object that is not selected has finalizers %v", got)
	}
}

// While an admission policy would mutate objects of a type that the API server has not loaded
// yet, it refuses them, whatever the failure policy.
func TestAttach_DoesNotBlockCreationOfANewType(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(`
kind: ClusterPolicyModule
metadata: {name: NS}
spec: {rego: {inline: "package gleaner\nfinalize := {\"decision\": \"Done\"}"}}`)
	f := w.applyPolicy(`
kind: ClusterFinalizer
metadata: {name: NS}
spec:
  finalizer: new.example.com/done
  resources: [{apiGroups: [new.example.com], resources: [things]}]
  module: {name: NS}
  mode: Enforce
  attach: true`)
	w.waitForCondition(f, "Attached", metav1.ConditionTrue, "Late", "things.new.example.com is not served yet")
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
		case known || !apierrors.IsNotFound(err): // it is served a moment after its definition was created
			t.Fatalf("after %d objects were created: %v", made, err)
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
		w.waitForFinalizers(&o, "new.example.com/done")
	}
	if err := w.objects.Resource(resources["Thing"]).Namespace(w.ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, o := range things.Items {
		w.waitForDeletion(&o)
	}
}

func TestNoAttach_HandlesOnlyObjectsWithTheFinalizer(t *testing.T) {
	w := newEnv(t)
	f := w.applyFinalizer("done", doneModule, "")
	plain, has := w.createConfigMap("plain"), w.createWithFinalizers("has", w.finalizerName("done"))
	w.delete(has)
	w.waitForDeletion(has)
	w.waitForStatus(f, "released", 1)
	if got := w.get(plain).GetFinalizers(); len(got) != 0 {
		t.Errorf("finalizers were added: %v", got)
	}
	w.waitForCondition(f, "Attached", metav1.ConditionFalse, "NotWanted", "attach: true")
}

func TestAfter_OrdersFinalizers(t *testing.T) {
	w := newEnv(t)
	last := w.applyFinalizer("last", doneModule, "after: ["+w.finalizerName("first")+"]")
	first := w.applyFinalizer("first", `finalize := {"decision": "Wait", "after": "1h"}`, "")
	o := w.createWithFinalizers("o", w.finalizerName("last"), w.finalizerName("first"))
	w.delete(o)
	w.eventually(func() error {
		for _, e := range w.collector.Records(o.GetUID()) {
			if e.Detail == w.finalizerName("last") && strings.Contains(e.Message, w.finalizerName("first")) {
				return nil
			}
		}
		return errorf("%s", w.describeDecisions(o))
	})
	w.waitForFinalizers(o, w.finalizerName("last"), w.finalizerName("first"))
	w.waitForStatus(last, "pending", 1)
	w.waitForStatus(first, "pending", 1)
	w.applyModule("first", doneModule)
	w.waitForDeletion(o)
	w.waitForStatus(last, "released", 1)
}

const waitForLabelModule = `
finalize := {"decision": "Done"} if input.object.metadata.labels.go
else := {"decision": "Wait", "after": "1h", "reason": "it has no label go"}
`

func TestWait_Ends_WithAChangeOf(t *testing.T) {
	for name, change := range map[string]func(w *env, f, o *unstructured.Unstructured){
		"the object": func(w *env, _, o *unstructured.Unstructured) {
			w.patch(o, `{"metadata": {"labels": {"go": "yes"}}}`)
		},
		"the module": func(w *env, _, _ *unstructured.Unstructured) { w.applyModule("waits", doneModule) },
		"the finalizer's module": func(w *env, f, _ *unstructured.Unstructured) {
			w.applyModule("other", doneModule)
			w.patch(f, `{"spec": {"module": {"name": "other", "digest": "`+pins.Of("package gleaner\n\n"+doneModule)+`"}}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t)
			f := w.applyFinalizer("waits", waitForLabelModule, w.readerSpec())
			o := w.createWithFinalizers("o", w.finalizerName("waits"))
			w.delete(o)
			w.expectBlocked(o, "FinalizerWaiting")
			change(w, f, o)
			w.waitForDeletion(o)
		})
	}
}

func TestWait_IsEvaluatedAgain_WhenItEnds(t *testing.T) {
	w := newEnv(t)
	w.applyFinalizer("waits", `
finalize := {"decision": "Done"} if input.attempt == 3
else := {"decision": "Wait", "after": "20ms"}`, "")
	o := w.createWithFinalizers("o", w.finalizerName("waits"))
	w.delete(o)
	w.waitForDeletion(o)
	if n := len(w.collector.Records(o.GetUID())); n == 0 {
		t.Error("no decision was recorded")
	}
}

func TestFinalizerFault_KeepsTheObject_UntilFixed(t *testing.T) {
	w := newEnv(t)
	f := w.applyFinalizer("faulty", `finalize := {"decision": "Maybe"}`, "")
	o := w.createWithFinalizers("o", w.finalizerName("faulty"))
	w.delete(o)
	w.expectBlocked(o, "FinalizerFault")
	s := w.waitForStuck(f, o, "Fault", "Maybe")
	if s["nextRetryTime"] == nil {
		t.Errorf("not retried: %v", s)
	}
	w.applyModule("faulty", doneModule)
	w.waitForDeletion(o)
	w.waitForStatus(f, "stalled", 0)
}

func TestFinalizer_WithoutAModule_KeepsItsObjects(t *testing.T) {
	w := newEnv(t)
	f := w.applyPolicy(`
kind: Finalizer
metadata: {name: none}
spec: {resources: [{apiGroups: [""], resources: [configmaps]}], module: {name: later, digest: ` + pins.Of("package gleaner\n\n"+doneModule) + `}, needs: Reference, mode: Enforce}`)
	w.waitForCondition(f, "ModuleReady", metav1.ConditionFalse, "NotFound", "there is no PolicyModule")
	o := w.createWithFinalizers("o", w.finalizerName("none"))
	w.delete(o)
	w.waitForStuck(f, o, "NotReady", "there is no PolicyModule")
	w.applyModule("later", doneModule)
	w.waitForDeletion(o)
}

func TestFail_IsFinal_UntilAChange(t *testing.T) {
	w := newEnv(t)
	f := w.applyFinalizer("fails", `
finalize := {"decision": "Done"} if input.object.metadata.labels.go
else := {"decision": "Fail", "reason": sprintf("nobody can help it, %d", [input.attempt])}`, w.readerSpec())
	o := w.createWithFinalizers("o", w.finalizerName("fails"))
	w.delete(o)
	s := w.waitForStuck(f, o, "Failed", "nobody can help it, 1")
	if s["nextRetryTime"] != nil {
		t.Errorf("retried at %v", s["nextRetryTime"])
	}
	w.patch(o, `{"metadata": {"labels": {"touched": "yes"}}}`)
	w.waitForStuck(f, o, "Failed", "nobody can help it, 2")
	w.patch(o, `{"metadata": {"labels": {"go": "yes"}}}`)
	w.waitForDeletion(o)
}

func TestDeadline_Object(t *testing.T) {
	const waits = `finalize := {"decision": "Wait", "after": "1h", "reason": "for ever", "state": {"deadline": input.deadline}}`
	t.Run("is held and reported", func(t *testing.T) {
		w := newEnv(t)
		f := w.applyFinalizer("waits", waits, "deadline: 1s")
		o := w.createWithFinalizers("o", w.finalizerName("waits"))
		w.delete(o)
		s := w.waitForStuck(f, o, "DeadlineExceeded", "the deadline of 1s has passed (onDeadline: Hold)")
		if s["deadlineTime"] == nil {
			t.Errorf("deadline is missing: %v", s)
		}
		w.waitForFinalizers(o, w.finalizerName("waits"))
	})
	t.Run("is released with onDeadline: Release", func(t *testing.T) {
		w := newEnv(t)
		w.applyFinalizer("waits", waits, "deadline: 1s\nonDeadline: Release")
		o := w.createWithFinalizers("o", w.finalizerName("waits"))
		w.delete(o)
		w.waitForDeletion(o)
		if e := w.waitForDecision(o, "FinalizerReleased"); !strings.Contains(e.Message, "the deadline of 1s has passed") {
			t.Errorf("recorded: %+v", e)
		}
	})
}

func TestRemovedFinalizer(t *testing.T) {
	const waits = `finalize := {"decision": "Wait", "after": "1h"}`
	t.Run("stays until no object has it", func(t *testing.T) {
		w := newEnv(t)
		f := w.applyFinalizer("stays", waits, "")
		o := w.createWithFinalizers("o", w.finalizerName("stays"))
		w.waitForFinalizers(f, "gleaner.dev/in-use")
		w.delete(f)
		w.waitForCondition(f, "Enforcing", metav1.ConditionTrue, "Removed", "which 1 have")
		w.waitForFinalizers(o, w.finalizerName("stays"))
		w.delete(o)
		w.applyModule("stays", doneModule)
		w.waitForDeletion(o, f)
	})
	t.Run("is removed from all with onRemoval: Release", func(t *testing.T) {
		w := newEnv(t)
		f := w.applyFinalizer("goes", waits, "onRemoval: Release")
		o, live := w.createWithFinalizers("o", w.finalizerName("goes")), w.createWithFinalizers("live", w.finalizerName("goes"))
		w.waitForFinalizers(f, "gleaner.dev/in-use")
		w.delete(o)
		w.expectBlocked(o, "FinalizerWaiting")
		w.delete(f)
		w.waitForDeletion(o, f)
		w.waitForFinalizers(live)
	})
}

func TestFinalizers_WithOneName_AreBothRefused(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(`
kind: ClusterPolicyModule
metadata: {name: NS}
spec: {rego: {inline: "package gleaner\nfinalize := {\"decision\": \"Done\"}"}}`)
	const spec = `
kind: ClusterFinalizer
metadata: {name: %s.NS}
spec: {finalizer: NS.example.com/x, resources: [{apiGroups: [""], resources: [configmaps]}], module: {name: NS}, mode: Enforce}`
	a, b := w.applyPolicy(fmt.Sprintf(spec, "a")), w.applyPolicy(fmt.Sprintf(spec, "b"))
	w.waitForCondition(a, "Accepted", metav1.ConditionFalse, "NameTaken", "ClusterFinalizer b."+w.ns)
	w.waitForCondition(b, "Accepted", metav1.ConditionFalse, "NameTaken", "ClusterFinalizer a."+w.ns)
	o := w.createWithFinalizers("o", w.ns+".example.com/x")
	w.delete(o)
	w.expectBlocked(o, "FinalizerNotReady")
	w.forceDelete(b)
	w.waitForDeletion(o)
}

func TestMonitorMode_EvaluatesFinalizers_AndChangesNothing(t *testing.T) {
	w := newEnv(t)
	f := w.applyFinalizer("watches", doneModule, "attach: true")
	w.patch(f, `{"spec": {"mode": "Monitor"}}`)
	w.waitForObserved(f)
	plain, o := w.createConfigMap("plain"), w.createWithFinalizers("o", w.finalizerName("watches"))
	w.delete(o)
	w.expectBlocked(o, "FinalizerMonitored")
	w.waitForStuck(f, o, "Monitor", "the module returned Done")
	w.waitForFinalizers(plain)
	w.patch(f, `{"spec": {"mode": "Enforce"}}`)
	w.waitForDeletion(o)
	w.waitForFinalizers(plain, w.finalizerName("watches"))
}

func TestFinalizer_OnAnUnselectedObject_IsReported(t *testing.T) {
	w := newEnv(t)
	f := w.applyFinalizer("picky", doneModule, "objectSelector: {matchLabels: {mine: \"yes\"}}")
	o := w.createWithFinalizers("o", w.finalizerName("picky"))
	w.delete(o)
	w.waitForStuck(f, o, "NotSelected", "does not select the object")
	w.patch(o, `{"metadata": {"labels": {"mine": "yes"}}}`)
	w.waitForDeletion(o)
}

func TestStateAndIdempotencyKey_SurviveARestart(t *testing.T) {
	o := newOperatorEnv(t)
	o.applyFinalizer("remembers", `
finalize := {"decision": "Done", "reason": "released"} if {
	input.object.metadata.labels.go
	input.state.key == input.idempotencyKey
	input.attempt > 1
} else := {"decision": "Wait", "after": "1h", "state": {"key": input.idempotencyKey}} if not input.state
else := {"decision": "Wait", "after": "1h"}`, o.readerSpec())
	object := o.createWithFinalizers("o", o.finalizerName("remembers"))
	o.delete(object)
	o.eventually(func() error {
		if text := o.get(object).GetAnnotations()["gleaner.dev/finalizers"]; !strings.Contains(text, "/finalize/") {
			return errorf("remembered: %s", text)
		}
		return nil
	})
	o.stopOperator()
	o.patch(object, `{"metadata": {"labels": {"go": "yes"}}}`)
	o.startOperator()
	o.waitForDeletion(object)
}

func TestFinalizerState_OfAnotherObject_IsIgnored(t *testing.T) {
	w := newEnv(t)
	w.applyFinalizer("remembers", `
finalize := {"decision": "Fail"} if input.state
else := {"decision": "Done"}`, "")
	o := w.createWithFinalizers("o", w.finalizerName("remembers"))
	w.patch(o, fmt.Sprintf(`{"metadata": {"annotations": {"gleaner.dev/finalizers": %s}}}`,
		quoteJSON(fmt.Sprintf(`{"uid": "another", "by": {%q: {"state": {"a": 1}}}}`, w.finalizerName("remembers")))))
	w.delete(o)
	w.waitForDeletion(o)
}
