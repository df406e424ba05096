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
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/test/inprocess"
)

func TestSecondDelete_DuringAWait_IsRespected(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(governingPolicy + `{propagate: {decision: Wait, after: 1h}}`)
	owner := w.createHeldSecret()
	dependent := w.createConfigMap("dependent", owner)
	w.delete(owner)
	w.waitForDecision(owner, "PolicyWaiting")
	w.deleteWithPolicy(owner, metav1.DeletePropagationOrphan)
	w.waitForDeletion(owner)
	w.waitForNoOwners(dependent)
}

func TestNamespace_WithHolds_CanBeDeleted(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(`
kind: ClusterGCPolicy
metadata: {name: everywhere-NS}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS-gone}}
  fixed: {propagate: {decision: Orphan}}
  mode: Enforce`)
	namespace := w.apply(`{kind: Namespace, metadata: {name: NS-gone}}`)
	w.applyPolicy(`
kind: GCPolicy
metadata: {name: governs, namespace: NS-gone}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  fixed: {propagate: {decision: Wait, after: 1h}}
  mode: Enforce`)
	held := w.apply(`{kind: Secret, metadata: {name: held, namespace: NS-gone}}`)
	settings := w.apply(`{kind: ConfigMap, metadata: {name: settings, namespace: NS-gone}}`)
	w.waitForHold(held, true)
	w.waitForHold(settings, true)
	w.delete(namespace)
	w.waitForDeletion(namespace)
}

// dedicatedEnv is a control plane on which the test starts and stops an operator.
type dedicatedEnv struct {
	*env
	cluster *devcluster.Cluster
	stop    func() error
}

// newDedicatedEnv starts a control plane for one test, and an operator on it: for tests that change
// what belongs to all, such as types.
func newDedicatedEnv(t *testing.T) *dedicatedEnv {
	t.Helper()
	t.Parallel()
	return newOperatorEnvOn(t, devtest.Start(t, devcluster.Options{Controllers: controllers}))
}

// newOperatorEnv starts an operator on a control plane that other tests have used before, and that is reset
// for them afterwards.
func newOperatorEnv(t *testing.T) *dedicatedEnv {
	t.Helper()
	t.Parallel()
	return newOperatorEnvOn(t, takeCluster(t))
}

func newOperatorEnvOn(t *testing.T, cluster *devcluster.Cluster) *dedicatedEnv {
	t.Helper()
	if err := inprocess.CreateCRDs(t, cluster.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	o := &dedicatedEnv{env: newEnvOn(t, cluster.RESTConfig(), nil), cluster: cluster}
	var err error
	if o.config, err = cluster.ConfigFor("gleaner", "system:masters"); err != nil {
		t.Fatal(err)
	}
	o.startOperator()
	t.Cleanup(o.stopOperator)
	return o
}

func (o *dedicatedEnv) startOperator() {
	o.Helper()
	var err error
	if o.collector, o.stop, err = runCollector(o.options()); err != nil {
		o.Fatal(err)
	}
}

func (o *dedicatedEnv) stopOperator() {
	if o.stop == nil {
		return
	}
	if err := o.stop(); err != nil {
		o.Error(err)
	}
	o.stop = nil
}

// writeState writes a decision into the state annotation of a held object, as the operator would.
func (o *dedicatedEnv) writeState(held *unstructured.Unstructured, decision string) {
	o.Helper()
	m := objectstate.State{UID: held.GetUID(), ReferencesHash: objectstate.HashReferences(held.GetOwnerReferences()), Propagation: &objectstate.Propagation{
		Policy: "GCPolicy " + o.ns + "/governs", Decision: decision, Requested: "Unspecified",
	}}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{objectstate.Annotation: o.signState(m)}}})
	if err != nil {
		o.Fatal(err)
	}
	o.patch(held, string(body))
}

// The operator stops between any two of its writes, and the policy is a different one when
// it restarts: the decision in the state annotation is completed.
func TestDecision_IsResumed_AfterARestart(t *testing.T) {
	o := newOperatorEnv(t)
	p := o.applyPolicy(governingPolicy + `{propagate: {decision: Orphan}}`)
	for claim, did := range map[string]func(owner *unstructured.Unstructured){
		"after the decision was written to the state annotation": func(owner *unstructured.Unstructured) {
			o.writeState(owner, "Orphan")
		},
		"after the second DELETE": func(owner *unstructured.Unstructured) {
			o.writeState(owner, "Orphan")
			o.deleteWithPolicy(owner, metav1.DeletePropagationOrphan)
		},
	} {
		t.Run(claim, func(t *testing.T) {
			o.patch(p, `{"spec": {"fixed": {"propagate": {"decision": "Orphan"}}}}`)
			o.waitForObserved(p)
			owner := o.createHeldSecret()
			dependent := o.createConfigMap("dependent", owner)
			o.stopOperator()
			o.delete(owner)
			did(o.get(owner))
			o.patch(p, `{"spec": {"fixed": {"propagate": {"decision": "Background"}}}}`)
			o.startOperator()
			o.waitForDeletion(owner)
			o.waitForNoOwners(dependent)
			o.forceDelete(dependent)
			o.waitForDeletion(dependent)
		})
	}
}

func TestDelay_IsResumed_AfterARestart(t *testing.T) {
	o := newOperatorEnv(t)
	p := o.applyPolicy(`
kind: GCPolicy
metadata: {name: later}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Delete, delay: 1h}}
  mode: Enforce`)
	owner := o.createConfigMap("owner")
	dependent := o.createConfigMap("dependent", owner)
	o.delete(owner)
	o.expectKept(dependent, "DelayedByPolicy")
	o.eventually(func() error {
		if o.stateOf(dependent).OwnersAbsentSince.IsZero() {
			return errorf("state annotation is missing")
		}
		return nil
	})
	before := o.stateOf(dependent)
	o.stopOperator()
	o.startOperator()
	o.expectKept(dependent, "DelayedByPolicy")
	if after := o.stateOf(dependent); !after.OwnersAbsentSince.Equal(before.OwnersAbsentSince) {
		t.Errorf("ownerless since %s, and now since %s", before.OwnersAbsentSince, after.OwnersAbsentSince)
	}
	o.forceDelete(p)
	o.waitForDeletion(dependent)
}

func TestHolds_AreReleased_WithoutPolicyTypes(t *testing.T) {
	o := newDedicatedEnv(t)
	o.applyPolicy(governingPolicy + `{propagate: {decision: Wait, after: 1h}}`)
	owner := o.createHeldSecret()
	dependent := o.createConfigMap("dependent", owner)
	o.delete(owner)
	o.waitForDecision(owner, "PolicyWaiting")
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
	o.waitForDeletion(owner, dependent)
}

func TestHolds_AreNotAdded_WithoutTheOperatorsNamespace(t *testing.T) {
	o := newDedicatedEnv(t)
	p := o.applyPolicy(`
kind: ClusterGCPolicy
metadata: {name: holds}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  fixed: {propagate: {decision: Orphan}}
  mode: Enforce`)
	o.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	n := 0
	born := func(wanted int) {
		t.Helper()
		o.eventually(func() error {
			n++
			if got := len(o.createObject("Secret", errorf("born-%d", n).Error(), nil).GetFinalizers()); got != wanted {
				return errorf("object was created with %d finalizers", got)
			}
			return nil
		})
	}
	born(1)
	o.stopOperator()
	parameter := o.apply(`{kind: ConfigMap, metadata: {name: gleaner-holds, namespace: kube-system}}`)
	o.forceDelete(parameter)
	born(0)
}
