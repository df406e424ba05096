package policies

import (
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// flagsWithoutMutating are flags that make an API server behave like one before Kubernetes 1.36.
var flagsWithoutMutating = []string{"--runtime-config=" +
	"admissionregistration.k8s.io/v1/mutatingadmissionpolicies=false,admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings=false",
	"--disable-admission-plugins=MutatingAdmissionPolicy"}

const heldOnCreate = `
kind: ClusterGCPolicy
metadata: {name: born-held}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  matchConditions: [{name: not-plain, expression: "object.metadata.name != 'plain'"}]
  fixed: {propagate: {decision: Orphan}}
  mode: Enforce`

const attachedOnCreate = `
kind: ClusterFinalizer
metadata: {name: born-attached}
spec:
  finalizer: test.example.com/cleans
  resources: [{apiGroups: [""], resources: [secrets]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  attach: true
  module: {name: cleans}
  mode: Enforce`

const cleans = `
kind: ClusterPolicyModule
metadata: {name: cleans}
spec:
  rego:
    inline: |
      package gleaner
      finalize := {"decision": "Done"}`

func TestFinalizers_AreAddedOnCreate_ByAWebhook(t *testing.T) {
	o := newDedicatedEnvOn(t, devcluster.Options{Controllers: controllers, APIServerFlags: flagsWithoutMutating})
	o.startOperator()
	before := o.createObject("Secret", "before", nil)
	p := o.applyPolicy(heldOnCreate)
	o.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	o.waitForHold(before, true)
	o.applyPolicy(cleans)
	f := o.applyPolicy(attachedOnCreate)
	n, both := 0, []string{graph.Hold, "test.example.com/cleans"}
	born := func(wanted ...string) {
		t.Helper()
		o.eventually(func() error { // API servers read it with a delay
			n++
			got := o.createObject("Secret", errorf("born-%d", n).Error(), nil).GetFinalizers()
			slices.Sort(got)
			if !slices.Equal(got, wanted) {
				return errorf("created with %v", got)
			}
			return nil
		})
	}
	born(both...)
	other := newEnvOn(t, o.config, o.collector).createObject("Secret", "elsewhere", nil)
	if plain := o.createObject("Secret", "plain", nil); slices.Contains(plain.GetFinalizers(), graph.Hold) || len(other.GetFinalizers()) != 0 {
		t.Errorf("ungoverned objects were created with finalizers %v and %v", plain.GetFinalizers(), other.GetFinalizers())
	}
	held := o.createObject("Secret", "stripped", nil)
	o.patch(held, `{"metadata": {"finalizers": null}}`) // restored in the same write
	if live := o.get(held); !slices.Contains(live.GetFinalizers(), graph.Hold) {
		t.Errorf("a client removed the hold: %v", live.GetFinalizers())
	}

	owner := o.createObject("Secret", "owner", nil)
	dependent := o.createConfigMap("dependent", owner)
	o.delete(owner) // finalizers removed during deletion are not restored
	o.waitForDeletion(owner)
	o.waitForNoOwners(dependent)

	o.forceDelete(f)
	born(graph.Hold)
	o.forceDelete(p)
	born()
	o.eventually(func() error {
		configurations := kubernetes.NewForConfigOrDie(o.config).AdmissionregistrationV1().MutatingWebhookConfigurations()
		if _, err := configurations.Get(t.Context(), admission.ConfigurationName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errorf("webhook configuration still exists: %w", err)
		}
		return nil
	})
}

func TestObjects_CanBeCreated_WithoutTheWebhook(t *testing.T) {
	o := newDedicatedEnvOn(t, devcluster.Options{Controllers: controllers, APIServerFlags: flagsWithoutMutating})
	o.startOperator()
	p := o.applyPolicy(heldOnCreate)
	n := 0
	o.eventually(func() error {
		n++
		if got := o.createObject("Secret", errorf("born-%d", n).Error(), nil).GetFinalizers(); len(got) == 0 {
			return errorf("created without a hold")
		}
		return nil
	})
	o.stopOperator()
	late := o.createObject("Secret", "late", nil)
	if len(late.GetFinalizers()) != 0 {
		t.Errorf("unexpected finalizers %v", late.GetFinalizers())
	}
	o.startOperator()
	o.waitForHold(late, true)
	o.forceDelete(p)
	o.waitForHold(late, false)
}
