package policies

import (
	"encoding/json"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/crds"
	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/memo"
	"github.com/gleaner-dev/gleaner/test/inside"
)

func TestASecondDeleteWhileAPolicyWaitsIsRespected(t *testing.T) {
	w := newWorld(t)
	w.policy(governing + `{propagate: {decision: Wait, after: 1h}}`)
	owner := w.secret()
	dependent := w.make("dependent", owner)
	w.delete(owner)
	w.decided(owner, "WaitsByPolicy")
	w.deleteBy(owner, metav1.DeletePropagationOrphan)
	w.goes(owner)
	w.free(dependent)
}

func TestANamespaceWithHoldsInItCanBeDeleted(t *testing.T) {
	w := newWorld(t)
	w.policy(`
kind: ClusterGCPolicy
metadata: {name: everywhere-NS}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS-gone}}
  fixed: {propagate: {decision: Orphan}}
  mode: Enforce`)
	namespace := w.apply(`{kind: Namespace, metadata: {name: NS-gone}}`)
	w.policy(`
kind: GCPolicy
metadata: {name: governs, namespace: NS-gone}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  fixed: {propagate: {decision: Wait, after: 1h}}
  mode: Enforce`)
	held := w.apply(`{kind: Secret, metadata: {name: held, namespace: NS-gone}}`)
	settings := w.apply(`{kind: ConfigMap, metadata: {name: settings, namespace: NS-gone}}`)
	w.held(held, true)
	w.held(settings, true)
	w.delete(namespace)
	w.goes(namespace)
}

// operation is a control plane of a test's own, on which the operator comes and
// goes.
type operation struct {
	*world
	cluster *devcluster.Cluster
	stop    func() error
}

func newOperation(t *testing.T) *operation {
	t.Helper()
	t.Parallel()
	cluster := devtest.Start(t, devcluster.Options{Controllers: controllers})
	if err := inside.Define(t, cluster.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	o := &operation{world: worldOn(t, cluster.RESTConfig(), nil), cluster: cluster}
	var err error
	if o.config, err = cluster.ConfigFor("gleaner", "system:masters"); err != nil {
		t.Fatal(err)
	}
	o.start()
	t.Cleanup(o.end)
	return o
}

func (o *operation) start() {
	o.Helper()
	var err error
	if o.collector, o.stop, err = run(o.options()); err != nil {
		o.Fatal(err)
	}
}

func (o *operation) end() {
	if o.stop == nil {
		return
	}
	if err := o.stop(); err != nil {
		o.Error(err)
	}
	o.stop = nil
}

// remember writes onto a held object what the operator would have.
func (o *operation) remember(held *unstructured.Unstructured, decision string) {
	o.Helper()
	m := memo.Memo{UID: held.GetUID(), References: memo.Hash(held.GetOwnerReferences()), Propagation: &memo.Propagation{
		Policy: "GCPolicy " + o.ns + "/governs", Decision: decision, Requested: "Unspecified",
	}}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{memo.Annotation: o.signed(m)}}})
	if err != nil {
		o.Fatal(err)
	}
	o.patch(held, string(body))
}

// The operator ends between any two of its writes, and the policy is another when
// it is back: what was decided stands.
func TestADecisionIsTakenUpWhereTheOperatorLeftIt(t *testing.T) {
	o := newOperation(t)
	p := o.policy(governing + `{propagate: {decision: Orphan}}`)
	for claim, did := range map[string]func(owner *unstructured.Unstructured){
		"after it was decided, and written down": func(owner *unstructured.Unstructured) {
			o.remember(owner, "Orphan")
		},
		"after the second DELETE": func(owner *unstructured.Unstructured) {
			o.remember(owner, "Orphan")
			o.deleteBy(owner, metav1.DeletePropagationOrphan)
		},
	} {
		t.Run(claim, func(t *testing.T) {
			o.patch(p, `{"spec": {"fixed": {"propagate": {"decision": "Orphan"}}}}`)
			o.policyObserved(p)
			owner := o.secret()
			dependent := o.make("dependent", owner)
			o.end()
			o.delete(owner)
			did(o.get(owner))
			o.patch(p, `{"spec": {"fixed": {"propagate": {"decision": "Background"}}}}`)
			o.start()
			o.goes(owner)
			o.free(dependent)
			o.remove(dependent)
			o.goes(dependent)
		})
	}
}

func TestADelayGoesOnWhereTheOperatorLeftIt(t *testing.T) {
	o := newOperation(t)
	p := o.policy(`
kind: GCPolicy
metadata: {name: later}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Delete, delay: 1h}}
  mode: Enforce`)
	owner := o.make("owner")
	dependent := o.make("dependent", owner)
	o.delete(owner)
	o.stays(dependent, "DelayedByPolicy")
	o.eventually(func() error {
		if o.remembered(dependent).OwnerlessSince.IsZero() {
			return errorf("nothing is remembered")
		}
		return nil
	})
	before := o.remembered(dependent)
	o.end()
	o.start()
	o.stays(dependent, "DelayedByPolicy")
	if after := o.remembered(dependent); !after.OwnerlessSince.Equal(before.OwnerlessSince) {
		t.Errorf("without an owner since %s, and now since %s", before.OwnerlessSince, after.OwnerlessSince)
	}
	o.remove(p)
	o.goes(dependent)
}

func TestHoldsGoWithTheTypesOfPolicies(t *testing.T) {
	o := newOperation(t)
	o.policy(governing + `{propagate: {decision: Wait, after: 1h}}`)
	owner := o.secret()
	dependent := o.make("dependent", owner)
	o.delete(owner)
	o.decided(owner, "WaitsByPolicy")
	definitions, err := crds.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	client := apiextensions.NewForConfigOrDie(o.config).ApiextensionsV1().CustomResourceDefinitions()
	for _, d := range definitions {
		if err := client.Delete(t.Context(), d.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	o.goes(owner, dependent)
}

func TestWithoutTheOperatorsNamespaceNothingGetsAHold(t *testing.T) {
	o := newOperation(t)
	p := o.policy(`
kind: ClusterGCPolicy
metadata: {name: holds}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  fixed: {propagate: {decision: Orphan}}
  mode: Enforce`)
	o.says(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	n := 0
	born := func(wanted int) {
		t.Helper()
		o.eventually(func() error {
			n++
			if got := len(o.object("Secret", errorf("born-%d", n).Error(), nil).GetFinalizers()); got != wanted {
				return errorf("created with %d finalizers", got)
			}
			return nil
		})
	}
	born(1)
	o.end()
	parameter := o.apply(`{kind: ConfigMap, metadata: {name: gleaner-holds, namespace: kube-system}}`)
	o.remove(parameter)
	born(0)
}
