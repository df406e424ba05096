package policies

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const keepLabeled = `
kind: GCPolicy
metadata: {name: keep}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  objectSelector: {matchLabels: {keep: "true"}}
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`

// The watches carry the labels.
func TestObjectSelector_ObjectsThatItDoesNotSelect_AreNotRead(t *testing.T) {
	w := newEnv(t)
	// Of objects that were seen before the policy, the labels are listed once, soon afterward.
	var owners, early []*unstructured.Unstructured
	for i := range 60 {
		owners = append(owners, w.createConfigMap(fmt.Sprintf("owner-%d", i)))
		early = append(early, w.createConfigMap(fmt.Sprintf("early-%d", i), owners[i]))
	}
	p := w.applyPolicy(keepLabeled)
	w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")

	// While the policy of another test comes or goes, objects of the type are read.
	turn := 0
	w.eventually(func() error {
		if turn++; turn > 20 {
			t.Fatal("each object that the policy does not select was read")
		}
		owner := w.createConfigMap(fmt.Sprint("late-owner-", turn))
		late := w.createConfigMap(fmt.Sprint("late-", turn), owner)
		kept := w.createObject("ConfigMap", fmt.Sprint("kept-", turn), map[string]string{"keep": "true"}, owner)
		w.delete(owner)
		w.waitForDeletion(late)
		w.expectKept(kept, "KeptByPolicy")
		w.waitForNoOwners(kept)
		if n := shared.reads.of(late); n != 0 {
			return errorf("it was read %d times", n)
		}
		return nil
	})

	w.eventually(func() error {
		if len(early) == 0 {
			t.Fatal("each object that was seen before the policy was read")
		}
		w.delete(owners[0])
		w.waitForDeletion(early[0])
		n := shared.reads.of(early[0])
		owners, early = owners[1:], early[1:]
		if n != 0 {
			return errorf("it was read %d times", n)
		}
		return nil
	})
}

// A label that is added after the policy counts, whichever of the two the watch has shown first.
func TestObjectSelector_FollowsTheLabels(t *testing.T) {
	w := newEnv(t)
	p := w.applyPolicy(keepLabeled)
	w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	for i := range 10 {
		owner := w.createConfigMap(fmt.Sprintf("owner-%d", i))
		kept := w.createConfigMap(fmt.Sprintf("kept-%d", i), owner)
		released := w.createObject("ConfigMap", fmt.Sprintf("released-%d", i), map[string]string{"keep": "true"}, owner)
		w.patch(kept, `{"metadata": {"labels": {"keep": "true"}}}`)
		w.patch(released, `{"metadata": {"labels": {"keep": null}}}`)
		w.delete(owner)
		w.waitForDeletion(released)
		w.waitForNoOwners(kept)
	}
}
