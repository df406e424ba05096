package faults

import (
	"fmt"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

const dependents = 10_000

// A namespace with ten thousand dependents of one owner is collected, and does
// not hold up another (3.12).
func Test3_12_TenThousandDependentsOfOneOwner(t *testing.T) {
	w := newWorld(t)
	other := worldOn(t, w.stage)
	owner, live := w.make(thing{name: "owner"}), w.make(thing{name: "live"})
	const writers = 8
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for at := i; at < dependents; at += writers {
				refs := owns(owner)
				if at%100 == 0 {
					refs = owns(owner, live)
				}
				if _, err := w.tryMake(thing{name: fmt.Sprintf("dependent-%d", at), owners: refs}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	w.delete(owner, background)
	other.calm()
	if n := w.left(); n <= dependents/100+1 {
		t.Logf("all was collected before the other namespace's turn could be seen: %d left", n)
	}
	devtest.Eventually(t, 3*patience, func() error { // the race detector on a busy machine deletes sixty in a second
		if n := w.left(); n > dependents/100+1 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	w.stays(live)
	if n := w.left(); n < dependents/100+1 {
		t.Errorf("of those with another owner only %d are left", n-1)
	}
}

// left counts the namespace's objects, but for the one that is made for each
// namespace and those that show that all is calm.
func (w *world) left() int {
	w.Helper()
	list, err := w.witness.client(configMap).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	n := 0
	for i := range list.Items {
		if name := list.Items[i].GetName(); name != "kube-root-ca.crt" {
			n++
		}
	}
	return n
}
