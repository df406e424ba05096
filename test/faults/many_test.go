package faults

import (
	"fmt"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// A namespace with ten thousand dependents of one owner is collected, and does
// not delay another namespace (3.12). With -short, it has two thousand.
func Test3_12_TenThousandDependents_OfOneOwner(t *testing.T) {
	dependents := 10_000
	if testing.Short() {
		dependents = 2_000
	}
	w := newEnv(t)
	other := newEnvOn(t, w.testbed)
	owner, live := w.create(objectSpec{name: "owner"}), w.create(objectSpec{name: "live"})
	const writers = 8
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for at := i; at < dependents; at += writers {
				refs := ownerRefs(owner)
				if at%100 == 0 {
					refs = ownerRefs(owner, live)
				}
				if _, err := w.tryCreate(objectSpec{name: fmt.Sprintf("dependent-%d", at), owners: refs}); err != nil {
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
	other.waitUntilIdle()
	if n := w.countObjects(); n <= dependents/100+1 {
		t.Logf("all objects were collected before the other namespace's: %d left", n)
	}
	devtest.Eventually(t, 3*timeout, func() error { // with the race detector on a busy machine, sixty are deleted a second
		if n := w.estimateObjects(); n > dependents/100+10 { // a list of all of them would keep the API server from deleting them
			return fmt.Errorf("about %d objects left", n)
		}
		if n := w.countObjects(); n > dependents/100+1 {
			return fmt.Errorf("%d objects left", n)
		}
		return nil
	})
	w.expectKept(live)
	if n := w.countObjects(); n < dependents/100+1 {
		t.Errorf("only %d objects with another owner are left", n-1)
	}
}

// estimateObjects counts the namespace's objects, with the default ones, without reading them.
func (w *env) estimateObjects() int {
	w.Helper()
	list, err := w.auditor.client(configMap).List(w.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		w.Fatal(err)
	}
	n := len(list.Items)
	if more := list.GetRemainingItemCount(); more != nil {
		n += int(*more)
	}
	return n
}

// countObjects counts the namespace's objects, except the default ones and those that calm
// creates.
func (w *env) countObjects() int {
	w.Helper()
	list, err := w.auditor.client(configMap).List(w.Context(), metav1.ListOptions{})
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
