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

const overridingPolicy = `
kind: ClusterGCPolicy
metadata: {name: overrides-NS}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  objectSelector: {matchLabels: {governed: "true"}}
  matchConditions: [{name: no-exception, expression: "object.metadata.name != 'exception'"}]
  explicitPropagation: Override
  mode: Enforce
  fixed: `

var governed = map[string]string{"governed": "true"}

// orphanOptions returns the ways to request Orphan.
func orphanOptions() map[string]metav1.DeleteOptions {
	policy, legacy := metav1.DeletePropagationOrphan, true
	return map[string]metav1.DeleteOptions{
		"propagationPolicy": {PropagationPolicy: &policy},
		"orphanDependents":  {OrphanDependents: &legacy},
	}
}

// waitForDeleteRefused waits until such a delete is refused: API servers read the policy with a
// delay. The delete is a dry run.
func (w *env) waitForDeleteRefused(o *unstructured.Unstructured, how metav1.DeleteOptions) {
	w.Helper()
	_ = w.deleteError(o, how)
}

// deleteError returns the error of a delete that is refused.
func (w *env) deleteError(o *unstructured.Unstructured, how metav1.DeleteOptions) error {
	w.Helper()
	how.DryRun = []string{metav1.DryRunAll}
	var refusal error
	w.eventually(func() error {
		if refusal = w.client(o).Delete(w.Context(), o.GetName(), how); refusal == nil {
			return errors.New("delete was allowed")
		}
		return nil
	})
	return refusal
}

func (w *env) expectDeleteAllowed(o *unstructured.Unstructured, how metav1.DeleteOptions) {
	w.Helper()
	how.DryRun = []string{metav1.DryRunAll}
	w.eventually(func() error { return w.client(o).Delete(w.Context(), o.GetName(), how) })
}

func TestOrphanRequest_IsRefused_IfOverridden(t *testing.T) {
	w := newEnv(t)
	p := w.applyPolicy(overridingPolicy + `{propagate: {decision: Background}}`)
	w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	owner := w.createObject("Secret", "owner", governed)
	w.waitForHold(owner, true)
	dependent := w.createConfigMap("dependent", owner)
	for name, how := range orphanOptions() {
		err := w.deleteError(owner, how)
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
		for _, part := range []string{
			"ClusterGCPolicy overrides-" + w.ns + " decides what becomes of the dependents",
			"delete without --cascade=orphan, or set explicitPropagation: Respect on the policy",
		} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v does not say %q", name, err, part)
			}
		}
	}
	w.delete(owner)
	w.waitForDeletion(owner, dependent)
}

func TestOrphanRequest_OfACollection_IsRefused_IfOverridden(t *testing.T) {
	w := newEnv(t)
	p := w.applyPolicy(governingPolicy + `{propagate: {decision: Background}}`)
	w.patch(p, `{"spec": {"explicitPropagation": "Override"}}`)
	owner := w.createObject("Secret", "owner", governed)
	w.waitForHold(owner, true)
	refusal := w.deleteError(owner, orphanOptions()["propagationPolicy"])
	if by := "GCPolicy " + w.ns + "/governs"; !strings.Contains(refusal.Error(), by) {
		t.Errorf("%v does not name %s", refusal, by)
	}
	err := w.objects.Resource(resources["Secret"]).Namespace(w.ns).
		DeleteCollection(t.Context(), orphanOptions()["propagationPolicy"], metav1.ListOptions{LabelSelector: "governed=true"})
	if !apierrors.IsForbidden(err) {
		t.Errorf("got error %v", err)
	}
	if live := w.get(owner); live.GetDeletionTimestamp() != nil || live.GetName() == "" {
		t.Error("the object is being deleted")
	}
}

func TestOrphanRequest_IsAllowed_IfNotOverridden(t *testing.T) {
	w := newEnv(t)
	p := w.applyPolicy(overridingPolicy + `{propagate: {decision: Background}}`)
	orphan := orphanOptions()["propagationPolicy"]
	owner := w.createObject("Secret", "owner", governed)
	w.waitForDeleteRefused(owner, orphan)
	for name, o := range map[string]*unstructured.Unstructured{
		"excluded by the policy's conditions": w.createObject("Secret", "exception", governed),
		"excluded by the policy's selector":   w.createObject("Secret", "unlabelled", nil),
		"excluded by the policy's resources":  w.createObject("ConfigMap", "another", governed),
		"in another namespace":                newEnvOn(t, w.config, w.collector).createObject("Secret", "elsewhere", governed),
	} {
		if err := w.client(o).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{PropagationPolicy: orphan.PropagationPolicy, DryRun: []string{metav1.DryRunAll}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	background := metav1.DeletePropagationBackground
	w.expectDeleteAllowed(owner, metav1.DeleteOptions{PropagationPolicy: &background})
	w.expectDeleteAllowed(owner, metav1.DeleteOptions{})
	w.patch(p, `{"spec": {"explicitPropagation": "Respect"}}`)
	w.expectDeleteAllowed(owner, orphan)
	w.patch(p, `{"spec": {"explicitPropagation": "Override"}}`)
	w.waitForDeleteRefused(owner, orphan)
	w.patch(p, `{"spec": {"mode": "Monitor"}}`)
	w.expectDeleteAllowed(owner, orphan)
	w.patch(p, `{"spec": {"mode": "Enforce", "fixed": {"propagate": {"decision": "Orphan"}}}}`)
	w.waitForObserved(p)
	w.waitForHold(owner, true)
	w.expectDeleteAllowed(owner, orphan) // the policy decides Orphan, too
}

// A policy that decides Orphan with exceptions makes Gleaner delete the object with
// Orphan. For a dependent that has a garbage collection finalizer, the built-in
// collector does the same.
func TestOrphanRequest_OfCollectors_IsAllowed(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(overridingPolicy + `{propagate: {decision: Orphan, dependents: [{kind: PersistentVolumeClaim, decision: Delete}]}}`)
	root, owner := w.createConfigMap("root"), w.createObject("Secret", "owner", governed)
	w.waitForHold(owner, true)
	kept, gone := w.createConfigMap("kept", owner), w.createClaim("gone", owner)
	w.waitForDeleteRefused(owner, orphanOptions()["propagationPolicy"])
	w.delete(owner)
	w.waitForDeletion(owner, gone)
	w.waitForNoOwners(kept)

	below := w.createObject("Secret", "below", governed, root)
	w.waitForHold(below, true)
	last := w.createConfigMap("last", below)
	w.patch(below, `{"metadata": {"finalizers": ["`+graph.Hold+`", "orphan"]}}`)
	w.delete(root)
	w.waitForDeletion(root, below)
	w.waitForNoOwners(last)
}

func TestNamespaceRemoved_DeletesAdmissionObjects(t *testing.T) {
	o := newDedicatedEnv(t)
	o.stopOperator()
	own := devtest.Namespace(t, o.config)
	there := o.options()
	there.Namespace = own
	var err error
	if o.collector, o.stop, err = runCollector(there); err != nil {
		t.Fatal(err)
	}
	o.applyPolicy(overridingPolicy + `{propagate: {decision: Background}}`)
	owner := o.createObject("Secret", "owner", governed)
	o.waitForHold(owner, true)
	o.waitForDeleteRefused(owner, orphanOptions()["propagationPolicy"])
	o.stopOperator()
	namespaces := dynamic.NewForConfigOrDie(o.config).Resource(resources["Namespace"])
	if err := namespaces.Delete(t.Context(), own, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	o.expectDeleteAllowed(owner, orphanOptions()["propagationPolicy"])
	for _, resource := range []string{
		"validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
		"validatingwebhookconfigurations", "mutatingwebhookconfigurations",
	} {
		gvr := resources["CustomResourceDefinition"].GroupVersion().WithResource(resource)
		gvr.Group = "admissionregistration.k8s.io"
		o.eventually(func() error {
			list, err := dynamic.NewForConfigOrDie(o.config).Resource(gvr).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=gleaner"})
			switch {
			case err == nil && len(list.Items) != 0:
				return errorf("%s still exists", list.Items[0].GetName())
			case apierrors.IsNotFound(err) && strings.HasPrefix(resource, "mutatingadmissionpolic"): // before Kubernetes 1.36
				return nil
			default:
				return err
			}
		})
	}
	if !slices.Contains(o.get(owner).GetFinalizers(), graph.Hold) {
		t.Error("the object was released")
	}
}
