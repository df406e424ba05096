package policies

import (
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The API server is killed while cascades of all kinds are in progress.
func TestAPIServerRestart_LosesNothing(t *testing.T) {
	o := newOperatorEnv(t)
	o.applyPolicy(governingPolicy + `{propagate: {decision: Orphan, dependents: [{kind: ServiceAccount, decision: Delete}]}}`)
	o.applyPolicy(`
kind: GCPolicy
metadata: {name: keeps}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  objectSelector: {matchLabels: {keep: "true"}}
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	o.applyPolicy(`
kind: GCPolicy
metadata: {name: later}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  objectSelector: {matchLabels: {later: "true"}}
  fixed: {collect: {decision: Delete, delay: 2s}}
  mode: Enforce`)
	o.waitForWebhook(map[string]string{"keep": "true"})
	const many = 30
	var owners, kept, dropped []*unstructured.Unstructured
	for i := range many {
		orphans, plain := o.createObject("Secret", fmt.Sprintf("orphans-%d", i), nil), o.createConfigMap(fmt.Sprintf("plain-%d", i))
		owners = append(owners, orphans, plain)
		kept = append(kept, o.createConfigMap(fmt.Sprintf("orphaned-%d", i), orphans),
			o.createObject("ConfigMap", fmt.Sprintf("kept-%d", i), map[string]string{"keep": "true"}, plain))
		dropped = append(dropped, o.createObject("ServiceAccount", fmt.Sprintf("excepted-%d", i), nil, orphans),
			o.createObject("ConfigMap", fmt.Sprintf("later-%d", i), map[string]string{"later": "true"}, plain),
			o.createObject("ServiceAccount", fmt.Sprintf("ungoverned-%d", i), nil, plain))
	}
	for i := 0; i < len(owners); i += 2 {
		o.waitForHold(owners[i], true)
	}
	for _, owner := range owners {
		o.delete(owner)
	}
	for _, share := range []int{many / 4, many} {
		o.eventually(func() error {
			if n := o.countSettled(kept); n < share {
				return errorf("%d of %d objects have no references", n, len(kept))
			}
			return nil
		})
		if err := errors.Join(o.cluster.KillAPIServer(), o.cluster.StartAPIServer(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	o.waitForDeletion(owners...)
	o.waitForDeletion(dropped...)
	for _, k := range kept {
		o.waitForNoOwners(k)
	}
}

// countSettled counts the objects without owner references.
func (o *dedicatedEnv) countSettled(objects []*unstructured.Unstructured) (n int) {
	o.Helper()
	list, err := o.objects.Resource(resources["ConfigMap"]).Namespace(o.ns).List(o.Context(), metav1.ListOptions{})
	if err != nil {
		o.Fatal(err)
	}
	free := map[string]bool{}
	for i := range list.Items {
		free[string(list.Items[i].GetUID())] = len(list.Items[i].GetOwnerReferences()) == 0
	}
	for _, object := range objects {
		if free[string(object.GetUID())] {
			n++
		}
	}
	return n
}
