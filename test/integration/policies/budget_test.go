package policies

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// budget applies a budget, and waits until it is in force.
func (w *env) budget(text string) *unstructured.Unstructured {
	w.Helper()
	b := w.apply(text)
	w.waitForCondition(b, v1alpha1.ConditionAccepted, metav1.ConditionTrue, "Accepted", "")
	return b
}

// deletions records when ConfigMaps of the test's namespace are deleted.
type deletions struct {
	times chan time.Time
}

func (p *pausable) watchDeletions() *deletions {
	p.Helper()
	d := &deletions{times: make(chan time.Time, len(p.all))}
	w, err := p.objects.Resource(resources["ConfigMap"]).Namespace(p.ns).Watch(p.Context(), metav1.ListOptions{LabelSelector: "by"})
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(w.Stop)
	go func() {
		for e := range w.ResultChan() {
			if e.Type == watch.Deleted {
				d.times <- time.Now()
			}
		}
	}()
	return d
}

// expectAtMost checks that no window had more deletions than that.
func (d *deletions) expectAtMost(t *testing.T, n, total int, window time.Duration) {
	t.Helper()
	var all []time.Time
	for range total {
		select {
		case at := <-d.times:
			all = append(all, at)
		case <-time.After(timeout):
			t.Fatalf("only %d of %d deletions were observed", len(all), total)
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	for i := n; i < len(all); i++ {
		if took := all[i].Sub(all[i-n]); took < window {
			t.Errorf("%d deletions within %s", n+1, took)
		}
	}
}

// number returns a field of an object's status.
func (w *env) number(o *unstructured.Unstructured, field string) int64 {
	w.Helper()
	n, _, _ := unstructured.NestedInt64(w.get(o).Object, "status", field)
	return n
}

func TestDeletionBudget_LimitsDeletionsInEachWindow(t *testing.T) {
	w := newEnv(t)
	p := newPausable(w, 12)
	b := w.budget(`
kind: DeletionBudget
metadata: {name: few}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  maxDeletions: 5
  window: 10s`)
	d := p.watchDeletions()
	p.delete(p.owner)
	w.waitForCondition(b, v1alpha1.ConditionExhausted, metav1.ConditionTrue, v1alpha1.ReasonWaiting, "")
	if n := w.number(b, "used"); n != 5 {
		t.Errorf("%d used", n)
	}
	p.waitForDeletion(p.all...)
	d.expectAtMost(t, 5, len(p.all), 10*time.Second-100*time.Millisecond)
	w.waitForCondition(b, v1alpha1.ConditionExhausted, metav1.ConditionFalse, v1alpha1.ReasonAvailable, "")
}

func TestDeletionBudget_ThatTripsWaitsForAPerson(t *testing.T) {
	w := newEnv(t)
	p := newPausable(w, 10)
	b := w.budget(`
kind: DeletionBudget
metadata: {name: trip}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  objectSelector: {matchLabels: {by: a}}
  maxDeletions: 2
  window: 10s
  onExhausted: Trip`)
	p.delete(p.owner)
	w.waitForCondition(b, v1alpha1.ConditionExhausted, metav1.ConditionTrue, v1alpha1.ReasonTripped, "gleaner resume --budget")
	for i, o := range p.all {
		if i%2 == 1 {
			p.waitForDeletion(o) // it selects the others
		}
	}
	left := func() (n int) {
		for i, o := range p.all {
			if i%2 == 0 && p.get(o).GetName() != "" {
				n++
			}
		}
		return n
	}
	w.eventually(func() error { // the window moves on, which changes nothing
		if n := w.number(b, "used"); n != 0 {
			return fmt.Errorf("%d used", n)
		}
		return nil
	})
	if n := left(); n != 3 {
		t.Errorf("%d of 5 are left, want 3", n)
	}
	resume := func() {
		w.patch(b, `{"metadata": {"annotations": {"`+v1alpha1.ResumeAnnotation+`": "`+strconv.FormatInt(w.number(b, "exhaustions"), 10)+`"}}}`)
	}
	resume()
	w.eventually(func() error {
		if n := left(); n != 1 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	w.waitForCondition(b, v1alpha1.ConditionExhausted, metav1.ConditionTrue, v1alpha1.ReasonTripped, "")
	if n := w.number(b, "exhaustions"); n != 2 {
		t.Errorf("exhausted %d times", n)
	}
	resume()
	p.waitForDeletion(p.all...)
}

func TestDeletionBudget_PercentageRefersToTheMatchingObjects(t *testing.T) {
	w := newEnv(t)
	p := newPausable(w, 10)
	b := w.budget(`
kind: DeletionBudget
metadata: {name: part}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  objectSelector: {matchExpressions: [{key: by, operator: Exists}]}
  maxDeletions: 35%
  window: 1h`)
	p.delete(p.owner)
	w.waitForCondition(b, v1alpha1.ConditionExhausted, metav1.ConditionTrue, v1alpha1.ReasonWaiting, "")
	if allowed, used := w.number(b, "allowed"), w.number(b, "used"); allowed != 3 || used != 3 {
		t.Errorf("%d of %d used, want 3 of 3", used, allowed)
	}
	w.eventually(func() error {
		if n := p.left(); n != 7 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	w.patch(b, `{"spec": {"maxDeletions": 100}}`) // takes effect at once
	p.waitForDeletion(p.all...)
}

func TestDeletionBudget_DeletingItReleasesWhatWaits(t *testing.T) {
	w := newEnv(t)
	p := newPausable(w, 4)
	b := w.budget(`
kind: DeletionBudget
metadata: {name: none}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  maxDeletions: 0
  window: 168h`)
	p.delete(p.owner)
	w.eventually(func() error {
		if n := w.number(b, "waiting"); n == 0 {
			return errors.New("nothing waits")
		}
		return nil
	})
	if n := p.left(); n != 4 {
		t.Errorf("%d of 4 are left", n)
	}
	p.delete(b)
	p.waitForDeletion(p.all...)
}

// Two budgets for the same objects: each allows what it allows, and one that is exhausted uses nothing of the other.
func TestDeletionBudgets_AllThatSelectAnObjectMustAllowIt(t *testing.T) {
	w := newEnv(t)
	p := newPausable(w, 8)
	narrow := w.budget(`
kind: DeletionBudget
metadata: {name: narrow}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  maxDeletions: 3
  window: 1h`)
	wide := w.budget(`
kind: ClusterDeletionBudget
metadata: {name: wide-NS}
spec:
  resources: [{apiGroups: [""], resources: ["*"]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  maxDeletions: 6
  window: 1h`)
	p.delete(p.owner)
	w.waitForCondition(narrow, v1alpha1.ConditionExhausted, metav1.ConditionTrue, v1alpha1.ReasonWaiting, "")
	w.eventually(func() error {
		if left, used := p.left(), w.number(wide, "used"); left != 5 || used != 3 {
			return fmt.Errorf("%d are left, %d used of the wide budget", left, used)
		}
		return nil
	})
	w.patch(narrow, `{"spec": {"maxDeletions": 100}}`)
	w.waitForCondition(wide, v1alpha1.ConditionExhausted, metav1.ConditionTrue, v1alpha1.ReasonWaiting, "")
	w.eventually(func() error {
		if left := p.left(); left != 2 {
			return fmt.Errorf("%d are left", left)
		}
		return nil
	})
}

// What a finalizer's module deletes counts like what Gleaner deletes by itself.
func TestDeletionBudget_CountsWhatModulesDelete(t *testing.T) {
	w := newEnv(t)
	var targets []string
	var secrets []*unstructured.Unstructured
	for _, name := range []string{"a", "b", "c"} {
		o := w.createObject("Secret", name, nil)
		secrets = append(secrets, o)
		targets = append(targets, fmt.Sprintf("{name: %s, uid: %q}", name, o.GetUID()))
	}
	b := w.budget(`
kind: DeletionBudget
metadata: {name: secrets}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  maxDeletions: 2
  window: 10s`)
	w.createWriter("secrets", "delete")
	w.applyFinalizer("purge", `
finalize := {"decision": "Done"} if count(input.results) > 0
else := {"decision": "Act", "intents": [i |
  some target in input.policy.settings.targets
  i := {"id": target.name, "delete": {"apiVersion": "v1", "kind": "Secret", "namespace": input.object.metadata.namespace, "name": target.name, "uid": target.uid}}
]}`, `serviceAccount: {name: writer}
grants: {write: [{apiGroups: [""], resources: [secrets], verbs: [delete]}]}
settings: {targets: [`+strings.Join(targets, ", ")+`]}`)
	o := w.createWithFinalizers("purged", w.finalizerName("purge"))
	w.delete(o)
	w.waitForDeletion(secrets[:2]...)
	w.waitForCondition(b, v1alpha1.ConditionExhausted, metav1.ConditionTrue, v1alpha1.ReasonWaiting, "")
	if w.get(secrets[2]).GetName() == "" || w.get(o).GetName() == "" {
		t.Error("more was deleted than the budget allows")
	}
	w.waitForDeletion(secrets[2], o)
}
