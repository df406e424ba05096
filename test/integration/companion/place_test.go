package policies

import (
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/modules"
)

// withoutMutating are the flags of an API server as those before Kubernetes 1.36 are.
var withoutMutating = []string{"--runtime-config=" +
	"admissionregistration.k8s.io/v1/mutatingadmissionpolicies=false,admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings=false",
	"--disable-admission-plugins=MutatingAdmissionPolicy"}

const bornHeld = `
kind: ClusterGCPolicy
metadata: {name: born-held}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  matchConditions: [{name: not-plain, expression: "object.metadata.name != 'plain'"}]
  fixed: {propagate: {decision: Orphan}}
  mode: Enforce`

const bornAttached = `
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

func TestFinalizersAreThereAsSoonAsTheObjectIsWhereTheServerHasNoMutatingAdmissionPolicies(t *testing.T) {
	o := operationOn(t, devcluster.Options{Controllers: controllers, APIServerFlags: withoutMutating})
	o.start()
	before := o.object("Secret", "before", nil)
	p := o.policy(bornHeld)
	o.says(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	o.held(before, true)
	o.policy(cleans)
	f := o.policy(bornAttached)
	n, both := 0, []string{graph.Hold, "test.example.com/cleans"}
	born := func(wanted ...string) {
		t.Helper()
		o.eventually(func() error { // API servers take a moment to know of it
			n++
			got := o.object("Secret", errorf("born-%d", n).Error(), nil).GetFinalizers()
			slices.Sort(got)
			if !slices.Equal(got, wanted) {
				return errorf("created with %v", got)
			}
			return nil
		})
	}
	born(both...)
	other := worldOn(t, o.config, o.collector).object("Secret", "elsewhere", nil)
	if plain := o.object("Secret", "plain", nil); slices.Contains(plain.GetFinalizers(), graph.Hold) || len(other.GetFinalizers()) != 0 {
		t.Errorf("what is not governed was created with %v and %v", plain.GetFinalizers(), other.GetFinalizers())
	}
	held := o.object("Secret", "stripped", nil)
	o.patch(held, `{"metadata": {"finalizers": null}}`) // in that very write they come back
	if live := o.get(held); !slices.Contains(live.GetFinalizers(), graph.Hold) {
		t.Errorf("a client has taken the hold off: %v", live.GetFinalizers())
	}

	owner := o.object("Secret", "owner", nil)
	dependent := o.make("dependent", owner)
	o.delete(owner) // taking finalizers off what is being deleted is not undone
	o.goes(owner)
	o.free(dependent)

	o.remove(f)
	born(graph.Hold)
	o.remove(p)
	born()
	o.eventually(func() error {
		configurations := kubernetes.NewForConfigOrDie(o.config).AdmissionregistrationV1().MutatingWebhookConfigurations()
		if _, err := configurations.Get(t.Context(), modules.PlaceName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errorf("the webhook's configuration is still there: %w", err)
		}
		return nil
	})
}

func TestObjectsAreCreatedWhileNobodyServesTheWebhookThatPlacesFinalizers(t *testing.T) {
	o := operationOn(t, devcluster.Options{Controllers: controllers, APIServerFlags: withoutMutating})
	o.start()
	p := o.policy(bornHeld)
	n := 0
	o.eventually(func() error {
		n++
		if got := o.object("Secret", errorf("born-%d", n).Error(), nil).GetFinalizers(); len(got) == 0 {
			return errorf("created without a hold")
		}
		return nil
	})
	o.end()
	late := o.object("Secret", "late", nil)
	if len(late.GetFinalizers()) != 0 {
		t.Errorf("somebody else has placed %v", late.GetFinalizers())
	}
	o.start()
	o.held(late, true)
	o.remove(p)
	o.held(late, false)
}
