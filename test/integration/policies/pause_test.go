package policies

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// deletes is a policy that decides about the ConfigMaps of the test like Kubernetes, so that in
// companion mode the built-in collector asks about them.
const deletes = `
kind: GCPolicy
metadata: {name: NAME}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  objectSelector: {matchLabels: {by: NAME}}
  fixed: {collect: {decision: Delete}}
  mode: Enforce`

// pausable is a namespace with objects that a policy decides about.
type pausable struct {
	*env
	owner *unstructured.Unstructured
	all   []*unstructured.Unstructured
}

// newPausable returns n ConfigMaps with the label by=a or by=b, and with one owner.
func newPausable(w *env, n int) *pausable {
	w.Helper()
	for _, name := range []string{"a", "b"} {
		policy := w.applyPolicy(strings.ReplaceAll(deletes, "NAME", name))
		w.waitForCondition(policy, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	}
	p := &pausable{env: w, owner: w.createObject("ServiceAccount", "owner", nil)}
	for i := range n {
		p.all = append(p.all, w.createObject("ConfigMap", fmt.Sprintf("dependent-%d", i), map[string]string{"by": string(rune('a' + i%2))}, p.owner))
	}
	return p
}

// pause creates a Pause, and waits until the operator says that it is in force.
func (w *env) pause(text string) *unstructured.Unstructured {
	w.Helper()
	p := w.apply(text)
	w.waitForCondition(p, v1alpha1.ConditionInForce, metav1.ConditionTrue, v1alpha1.ReasonPaused, "")
	return p
}

// expectStopped waits until deletions were tried and stopped, and checks that nothing of these is
// gone. The control is a namespace that isn't paused, in which an owner is deleted later.
func (p *pausable) expectStopped(control *pausable, objects ...*unstructured.Unstructured) {
	p.Helper()
	control.delete(control.owner)
	control.waitForDeletion(control.all...)
	for _, o := range objects {
		if live := p.get(o); live.GetName() == "" || live.GetDeletionTimestamp() != nil {
			p.Errorf("%s %s is gone or terminating; %s", o.GetKind(), o.GetName(), p.describeDecisions(o))
		}
	}
}

func TestPause_OfANamespace_StopsDeletionsThereUntilItIsDeleted(t *testing.T) {
	w := newEnv(t)
	p, control := newPausable(w, 6), newPausable(newEnvOn(t, w.config, w.collector), 2)
	pause := w.pause(`{kind: Pause, metadata: {name: all}, spec: {reason: testing}}`)
	p.delete(p.owner)
	p.expectStopped(control, p.all...)
	p.delete(pause)
	p.waitForDeletion(p.all...)
}

func TestPause_OfAPolicy_StopsWhatItDecides(t *testing.T) {
	w := newEnv(t)
	p, control := newPausable(w, 6), newPausable(newEnvOn(t, w.config, w.collector), 2)
	pause := w.pause(`{kind: Pause, metadata: {name: a}, spec: {policy: {kind: GCPolicy, name: a}}}`)
	p.delete(p.owner)
	var ofA, ofB []*unstructured.Unstructured
	for i, o := range p.all {
		if i%2 == 0 {
			ofA = append(ofA, o)
		} else {
			ofB = append(ofB, o)
		}
	}
	p.waitForDeletion(ofB...)
	p.expectStopped(control, ofA...)
	p.delete(pause)
	p.waitForDeletion(ofA...)
}

func TestPause_WithAnEnd_EndsByItself(t *testing.T) {
	w := newEnv(t)
	p := newPausable(w, 4)
	until := time.Now().Add(10 * time.Second).UTC().Format(time.RFC3339)
	pause := w.pause(`{kind: Pause, metadata: {name: all}, spec: {until: "` + until + `"}}`)
	p.delete(p.owner)
	p.waitForDeletion(p.all...)
	if now := time.Now(); now.Before(parse(t, until)) {
		t.Errorf("deleted at %s, before the end of the pause", now)
	}
	p.waitForCondition(pause, v1alpha1.ConditionInForce, metav1.ConditionFalse, v1alpha1.ReasonExpired, "")
}

func parse(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// Dependents that a held owner orphans keep their reference, and the owner its hold, until the pause
// ends.
func TestPause_StopsOrphaningAndKeepsHolds(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(governingPolicy + `{propagate: {decision: Orphan}}`)
	owner := w.createObject("Secret", "owner", nil)
	dependent := w.createConfigMap("dependent", owner)
	w.waitForHold(owner, true)
	control := newPausable(newEnvOn(t, w.config, w.collector), 2)
	pause := w.pause(`{kind: Pause, metadata: {name: all}}`)
	second := w.createObject("Secret", "second", nil) // protecting goes on
	w.waitForHold(second, true)
	w.delete(owner)
	control.delete(control.owner)
	control.waitForDeletion(control.all...)
	if live := w.get(owner); live.GetName() == "" {
		t.Errorf("the owner is gone; %s", w.describeDecisions(owner))
	}
	if live := w.get(dependent); len(live.GetOwnerReferences()) != 1 {
		t.Errorf("the dependent was orphaned; %s", w.describeDecisions(dependent))
	}
	w.delete(pause)
	w.waitForDeletion(owner)
	w.waitForNoOwners(dependent)
}

// What is left after a pause of everything is in force stays, even of a cascade in progress.
func TestClusterPause_StopsACascadeInProgress(t *testing.T) {
	const many, inFlight = 600, 20
	o := newOperatorEnv(t)
	p := newPausable(o.env, many)
	p.delete(p.owner)
	p.eventually(func() error {
		if left := p.left(); left > many-5 {
			return fmt.Errorf("%d are left", left)
		}
		return nil
	})
	began := time.Now()
	pause := o.apply(`{kind: ClusterPause, metadata: {name: incident}}`)
	o.waitForCondition(pause, v1alpha1.ConditionInForce, metav1.ConditionTrue, v1alpha1.ReasonPaused, "")
	took, left := time.Since(began), p.left()
	t.Logf("in force after %s: %d of %d objects are left", took, left, many)
	o.applyPolicy(governingPolicy + `{propagate: {decision: Orphan}}`)
	second := o.createObject("Secret", "second", nil) // the collector goes on with what protects
	o.waitForHold(second, true)
	if now := p.left(); left-now > inFlight || now == 0 {
		t.Errorf("%d objects were left when the pause was in force, and %d later", left, now)
	}
	o.delete(pause)
	p.waitForDeletion(p.all...)
}

// left counts the objects that still exist.
func (p *pausable) left() int {
	p.Helper()
	list, err := p.objects.Resource(resources["ConfigMap"]).Namespace(p.ns).List(p.Context(), metav1.ListOptions{LabelSelector: "by"})
	if err != nil {
		p.Fatal(err)
	}
	return len(list.Items)
}
