package policies

import (
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

const overriding = `
kind: ClusterGCPolicy
metadata: {name: overrides-NS}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  objectSelector: {matchLabels: {governed: "true"}}
  matchConditions: [{name: no-exception, expression: "object.metadata.name != 'exception'"}]
  explicit: Override
  mode: Enforce
  fixed: `

var governed = map[string]string{"governed": "true"}

// orphaning are the ways to ask for Orphan.
func orphaning() map[string]metav1.DeleteOptions {
	policy, legacy := metav1.DeletePropagationOrphan, true
	return map[string]metav1.DeleteOptions{
		"propagationPolicy": {PropagationPolicy: &policy},
		"orphanDependents":  {OrphanDependents: &legacy},
	}
}

// refused waits until an object can't be deleted so: API servers take a moment to know
// of it. A dry run asks without doing it.
func (w *world) refused(o *unstructured.Unstructured, how metav1.DeleteOptions) {
	w.Helper()
	_ = w.refusal(o, how)
}

// refusal is what the API server says to a delete that it refuses.
func (w *world) refusal(o *unstructured.Unstructured, how metav1.DeleteOptions) error {
	w.Helper()
	how.DryRun = []string{metav1.DryRunAll}
	var refusal error
	w.eventually(func() error {
		if refusal = w.client(o).Delete(w.Context(), o.GetName(), how); refusal == nil {
			return errors.New("the delete passes")
		}
		return nil
	})
	return refusal
}

func (w *world) passes(o *unstructured.Unstructured, how metav1.DeleteOptions) {
	w.Helper()
	how.DryRun = []string{metav1.DryRunAll}
	w.eventually(func() error { return w.client(o).Delete(w.Context(), o.GetName(), how) })
}

func TestADeleteThatAsksForOrphanIsRefusedWhereThePolicyOverridesIt(t *testing.T) {
	w := newWorld(t)
	p := w.policy(overriding + `{propagate: {decision: Background}}`)
	w.says(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	owner := w.object("Secret", "owner", governed)
	w.held(owner, true)
	dependent := w.make("dependent", owner)
	for name, how := range orphaning() {
		err := w.refusal(owner, how)
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
		for _, part := range []string{
			"ClusterGCPolicy overrides-" + w.ns + " decides what becomes of the dependents",
			"delete without --cascade=orphan, or set explicit: Respect on the policy",
		} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v does not say %q", name, err, part)
			}
		}
	}
	w.delete(owner)
	w.goes(owner, dependent)
}

func TestADeleteOfManyThatAsksForOrphanIsRefusedByAPolicyOfTheNamespace(t *testing.T) {
	w := newWorld(t)
	p := w.policy(governing + `{propagate: {decision: Background}}`)
	w.patch(p, `{"spec": {"explicit": "Override"}}`)
	owner := w.object("Secret", "owner", governed)
	w.held(owner, true)
	refusal := w.refusal(owner, orphaning()["propagationPolicy"])
	if by := "GCPolicy " + w.ns + "/governs"; !strings.Contains(refusal.Error(), by) {
		t.Errorf("%v does not name %s", refusal, by)
	}
	err := w.objects.Resource(resources["Secret"]).Namespace(w.ns).
		DeleteCollection(t.Context(), orphaning()["propagationPolicy"], metav1.ListOptions{LabelSelector: "governed=true"})
	if !apierrors.IsForbidden(err) {
		t.Errorf("the API server says %v", err)
	}
	if live := w.get(owner); live.GetDeletionTimestamp() != nil || live.GetName() == "" {
		t.Error("it is being deleted")
	}
}

func TestADeleteThatAsksForOrphanPassesWhereNoPolicyOverridesIt(t *testing.T) {
	w := newWorld(t)
	p := w.policy(overriding + `{propagate: {decision: Background}}`)
	orphan := orphaning()["propagationPolicy"]
	owner := w.object("Secret", "owner", governed)
	w.refused(owner, orphan)
	for name, o := range map[string]*unstructured.Unstructured{
		"a policy's conditions leave it out":    w.object("Secret", "exception", governed),
		"a policy's selector leaves it out":     w.object("Secret", "unlabelled", nil),
		"a policy's resources leave it out":     w.object("ConfigMap", "another", governed),
		"it is of a namespace that is not ours": worldOn(t, w.config, w.collector).object("Secret", "elsewhere", governed),
	} {
		if err := w.client(o).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{PropagationPolicy: orphan.PropagationPolicy, DryRun: []string{metav1.DryRunAll}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	background := metav1.DeletePropagationBackground
	w.passes(owner, metav1.DeleteOptions{PropagationPolicy: &background})
	w.passes(owner, metav1.DeleteOptions{})
	w.patch(p, `{"spec": {"explicit": "Respect"}}`)
	w.passes(owner, orphan)
	w.patch(p, `{"spec": {"explicit": "Override"}}`)
	w.refused(owner, orphan)
	w.patch(p, `{"spec": {"mode": "Monitor"}}`)
	w.passes(owner, orphan)
	w.patch(p, `{"spec": {"mode": "Enforce", "fixed": {"propagate": {"decision": "Orphan"}}}}`)
	w.policyObserved(p)
	w.held(owner, true)
	w.passes(owner, orphan) // that is what it decides itself
}

// A policy that decides Orphan with exceptions has Gleaner delete the object with
// Orphan, and a dependent that has a finalizer of garbage collection has the other
// collector do so.
func TestWhatGleanerAndTheOtherCollectorDeleteIsNotRefused(t *testing.T) {
	w := newWorld(t)
	w.policy(overriding + `{propagate: {decision: Orphan, dependents: [{kind: PersistentVolumeClaim, decision: Delete}]}}`)
	root, owner := w.make("root"), w.object("Secret", "owner", governed)
	w.held(owner, true)
	kept, gone := w.make("kept", owner), w.claim("gone", owner)
	w.refused(owner, orphaning()["propagationPolicy"])
	w.delete(owner)
	w.goes(owner, gone)
	w.free(kept)

	below := w.object("Secret", "below", governed, root)
	w.held(below, true)
	last := w.make("last", below)
	w.patch(below, `{"metadata": {"finalizers": ["`+graph.Hold+`", "orphan"]}}`)
	w.delete(root)
	w.goes(root, below)
	w.free(last)
}

func TestWithoutTheOperatorsNamespaceNothingIsRefusedAndNoAdmissionObjectIsLeft(t *testing.T) {
	o := newOperation(t)
	o.end()
	own := devtest.Namespace(t, o.config)
	there := o.options()
	there.Namespace = own
	var err error
	if o.collector, o.stop, err = run(there); err != nil {
		t.Fatal(err)
	}
	o.policy(overriding + `{propagate: {decision: Background}}`)
	owner := o.object("Secret", "owner", governed)
	o.held(owner, true)
	o.refused(owner, orphaning()["propagationPolicy"])
	o.end()
	namespaces := dynamic.NewForConfigOrDie(o.config).Resource(resources["Namespace"])
	if err := namespaces.Delete(t.Context(), own, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	o.passes(owner, orphaning()["propagationPolicy"])
	for _, resource := range []string{
		"validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
		"validatingwebhookconfigurations", "mutatingwebhookconfigurations",
	} {
		gvr := resources["CustomResourceDefinition"].GroupVersion().WithResource(resource)
		gvr.Group = "admissionregistration.k8s.io"
		o.eventually(func() error {
			list, err := dynamic.NewForConfigOrDie(o.config).Resource(gvr).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=gleaner"})
			if err == nil && len(list.Items) != 0 {
				err = errorf("%s is still there", list.Items[0].GetName())
			}
			return err
		})
	}
	if !slices.Contains(o.get(owner).GetFinalizers(), graph.Hold) {
		t.Error("somebody has released the object")
	}
}
