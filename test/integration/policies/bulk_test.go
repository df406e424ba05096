package policies

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Where many objects are needed at once, lists have them. What they are decided on is the same.
func TestNeedsObject_OfManyObjects_IsNotReadOneByOne(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(`
kind: ClusterPolicyModule
metadata: {name: NS}
spec: {rego: {inline: 'package gleaner

    collect := {"decision": "Orphan"} if input.object.data.keep == "true"

    else := {"decision": "Delete"}'}}`)
	p := w.applyPolicy(`
kind: ClusterGCPolicy
metadata: {name: NS}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  module: {name: NS}
  mode: Enforce`)
	w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	owner := w.createConfigMap("owner")
	var kept, others []*unstructured.Unstructured
	for i := range 200 {
		o := w.createConfigMap(fmt.Sprintf("o-%d", i), owner)
		w.patch(o, fmt.Sprintf(`{"data": {"keep": "%t"}}`, i%2 == 0))
		if i%2 == 0 {
			kept = append(kept, o)
		} else {
			others = append(others, o)
		}
	}
	w.delete(owner)
	reads := 0
	for i := range kept {
		w.waitForNoOwners(kept[i])
		w.waitForDeletion(others[i])
		reads += shared.reads.of(kept[i]) + shared.reads.of(others[i])
	}
	if reads >= len(kept)+len(others) {
		t.Errorf("%d objects were read by %d GETs, want fewer", len(kept)+len(others), reads)
	}
	t.Logf("%d objects were read by %d GETs", len(kept)+len(others), reads)
}
