package policies

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// retention applies a RetentionPolicy for some resources of the test's namespace.
func (w *env) retention(name, mode, resources, limits string) *unstructured.Unstructured {
	w.Helper()
	group, resource, _ := strings.Cut(resources, "/")
	return w.apply(fmt.Sprintf(`
kind: RetentionPolicy
metadata: {name: %s}
spec:
  mode: %s
  resources: [{apiGroups: [%q], resources: [%s]}]
  %s`, name, mode, group, resource, strings.ReplaceAll(limits, "\n", "\n  ")))
}

func (w *env) waitForEnforcing(p *unstructured.Unstructured) {
	w.Helper()
	w.waitForCondition(p, v1alpha1.ConditionEnforcing, metav1.ConditionTrue, "Enforcing", "objects are removed when a limit is reached")
}

// waitForMonitor waits until the status of a policy in mode Monitor says how many objects are due, and returns it.
func (w *env) waitForMonitor(p *unstructured.Unstructured, selected, due int64) v1alpha1.RetentionPolicyStatus {
	w.Helper()
	var status v1alpha1.RetentionPolicyStatus
	w.eventually(func() error {
		live := w.get(p)
		status = statusOf(w.T, live)
		if ptr.Deref(status.Selected, -1) != selected || ptr.Deref(status.Due, -1) != due {
			return fmt.Errorf("status: %v", live.Object["status"])
		}
		return nil
	})
	return status
}

func statusOf(t *testing.T, o *unstructured.Unstructured) (status v1alpha1.RetentionPolicyStatus) {
	t.Helper()
	fields, _, err := unstructured.NestedMap(o.Object, "status")
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &status)
	}
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// finishPod ends a Pod some time ago, as a kubelet does.
func (w *env) finishPod(o *unstructured.Unstructured, ago time.Duration) {
	w.Helper()
	at := time.Now().Add(-ago).UTC().Format(time.RFC3339)
	w.patchStatus(o, fmt.Sprintf(`{"status": {"phase": "Succeeded", "containerStatuses": [{"name": "main", "image": "none", "imageID": "", "ready": false,
	  "restartCount": 0, "state": {"terminated": {"exitCode": 0, "finishedAt": %q}}}]}}`, at))
}

func (w *env) patchStatus(o *unstructured.Unstructured, text string) {
	w.Helper()
	if _, err := w.client(o).Patch(w.Context(), o.GetName(), types.MergePatchType, []byte(text), metav1.PatchOptions{}, "status"); err != nil {
		w.Fatal(err)
	}
}

func (w *env) createIdlePod(name string, spec map[string]any) *unstructured.Unstructured {
	w.Helper()
	full := map[string]any{"containers": []any{map[string]any{"name": "main", "image": "none"}}, "schedulerName": "none"}
	for key, value := range spec {
		full[key] = value
	}
	return w.createPod(name, map[string]any{}, full)
}

// expectLive checks that objects exist and are not being deleted.
func (w *env) expectLive(objects ...*unstructured.Unstructured) {
	w.Helper()
	for _, o := range objects {
		if live := w.get(o); live.GetUID() != o.GetUID() || live.GetDeletionTimestamp() != nil {
			w.Errorf("%s %s was deleted: %s", o.GetKind(), o.GetName(), w.describeDecisions(o))
		}
	}
}

func TestRetention_RemovesFinishedPods_OnceItIsEnforced(t *testing.T) {
	w := newEnv(t)
	old, recent, running := w.createIdlePod("old", nil), w.createIdlePod("recent", nil), w.createIdlePod("running", nil)
	w.finishPod(old, 2*time.Hour)
	w.finishPod(recent, time.Minute)
	p := w.retention("finished", "Monitor", "/pods", "ttlAfterFinished: 1h")
	s := w.waitForMonitor(p, 3, 1)
	if len(s.NextRemovals) != 2 || s.NextRemovals[0].Name != "old" || s.NextRemovals[0].Reason != "Expired" || s.NextRemovals[1].Name != "recent" ||
		time.Until(s.NextRemovals[1].Time.Time) > time.Hour || time.Until(s.NextRemovals[1].Time.Time) < 50*time.Minute {
		t.Errorf("next removals: %+v", s.NextRemovals)
	}
	w.waitForCondition(p, v1alpha1.ConditionEnforcing, metav1.ConditionFalse, "Monitor", "nothing is removed")
	w.expectLive(old)
	w.patch(p, `{"spec": {"mode": "Enforce"}}`)
	w.waitForDeletion(old)
	e := w.waitForDecision(old, "RemovedByRetention")
	if want := "RetentionPolicy " + w.ns + "/finished: ttlAfterFinished: 1h"; e.Message != want || e.Policy != "RetentionPolicy "+w.ns+"/finished" {
		t.Errorf("it was recorded as %+v", e)
	}
	w.waitForEvent(old, "RemovedByRetention", "ttlAfterFinished: 1h")
	w.waitForEnforcing(p)
	w.waitForStatus(p, "removed", 1)
	w.finishPod(running, 90*time.Minute) // it is removed as soon as that is seen
	w.waitForDeletion(running)
	w.expectLive(recent)
}

// P-01, P-09: the last of each group stay; and what Pods use, whatever the limits are (P-02).
func TestRetention_KeepsTheLastOfEachGroup(t *testing.T) {
	w := newEnv(t)
	var all []*unstructured.Unstructured
	for _, name := range []string{"a1", "a2", "a3", "b1"} {
		all = append(all, w.createObject("ConfigMap", name, map[string]string{"app": name[:1], "keep": "last"}))
		w.passSecond() // creation times have seconds
	}
	used := w.createObject("ConfigMap", "a0", map[string]string{"app": "a", "keep": "last"})
	w.createIdlePod("user", map[string]any{"volumes": []any{map[string]any{"name": "v", "configMap": map[string]any{"name": "a0"}}}})
	p := w.retention("last", "Enforce", "/configmaps", "groupBy: {type: Label, label: app}\nkeepLast: 2\nobjectSelector: {matchLabels: {keep: last}}")
	w.waitForDeletion(all[0], all[1]) // a0 counts, and is the newest
	w.waitForEnforcing(p)
	w.expectLive(all[2], all[3], used)
	s := w.waitForMonitor(p, 3, 0)
	if s.Kept["InUse"] != 1 {
		t.Errorf("kept: %v", s.Kept)
	}
	newest := w.createObject("ConfigMap", "a9", map[string]string{"app": "a", "keep": "last"})
	w.waitForDeletion(all[2])
	w.expectLive(newest, used, all[3])
}

func (w *env) passSecond() {
	w.Helper()
	began := time.Now()
	w.eventually(func() error {
		if time.Since(began) < time.Second {
			return errors.New("not yet")
		}
		return nil
	})
}

func TestRetention_NeverTouchesWhatTheClusterNeeds(t *testing.T) {
	w := newEnv(t)
	plain, owner, controlled, pinned := w.createConfigMap("plain"), w.createObject("Secret", "owner", nil), w.createConfigMap("controlled"), w.createConfigMap("pinned")
	w.patch(controlled, fmt.Sprintf(`{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": %q, "controller": true}]}}`, owner.GetUID()))
	w.patch(pinned, `{"metadata": {"annotations": {"gleaner.dev/keep": "true"}}}`)
	p := w.retention("everything", "Enforce", "/configmaps, serviceaccounts", "keepLast: 0")
	w.waitForDeletion(plain)
	w.waitForEnforcing(p)
	w.expectLive(controlled, pinned)
	for _, o := range []*unstructured.Unstructured{named("ConfigMap", "kube-root-ca.crt"), named("ServiceAccount", "default")} {
		if live, err := w.client(o).Get(w.Context(), o.GetName(), metav1.GetOptions{}); err != nil || time.Since(live.GetCreationTimestamp().Time) < time.Second {
			t.Errorf("%s %s was deleted: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

func named(kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(resources[kind].GroupVersion().WithKind(kind))
	o.SetName(name)
	return o
}

// P-25: what any policy in force keeps stays, and the one that would remove it says so.
func TestRetention_WhatAnotherPolicyKeepsStays(t *testing.T) {
	w := newEnv(t)
	a, b := w.createObject("Secret", "a", map[string]string{"tier": "data"}), w.createObject("Secret", "b", nil)
	keeping := w.retention("keep-data", "Enforce", "/secrets", "objectSelector: {matchLabels: {tier: data}}\nmaxAge: 1000h")
	w.waitForEnforcing(keeping)
	p := w.retention("old", "Enforce", "/secrets", "maxAge: 1s")
	w.waitForDeletion(b)
	w.waitForCondition(p, v1alpha1.ConditionEnforcing, metav1.ConditionTrue, "Enforcing", "another policy keeps Secret "+w.ns+"/a: RetentionPolicy "+w.ns+"/keep-data keeps it")
	w.expectLive(a)
	w.delete(keeping)
	w.waitForDeletion(a)
}

func TestRetention_WaitsForPausesAndBudgets(t *testing.T) {
	w := newEnv(t)
	pause := w.pause("kind: Pause\nmetadata: {name: all}\nspec: {}")
	budget := w.budget(`
kind: DeletionBudget
metadata: {name: few}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  maxDeletions: 2
  window: 10s`)
	var all []*unstructured.Unstructured
	for i := range 5 {
		all = append(all, w.createObject("Secret", fmt.Sprint("s", i), nil))
	}
	p := w.retention("old", "Enforce", "/secrets", "maxAge: 1s")
	w.waitForCondition(p, v1alpha1.ConditionEnforcing, metav1.ConditionFalse, "Waiting", "Pause "+w.ns+"/all")
	w.expectLive(all...)
	w.delete(pause)
	w.waitForCondition(budget, v1alpha1.ConditionExhausted, metav1.ConditionTrue, v1alpha1.ReasonWaiting, "")
	left := slices.DeleteFunc(slices.Clone(all), func(o *unstructured.Unstructured) bool { return w.get(o).GetName() == "" })
	if len(left) == 0 {
		t.Error("all were deleted at once")
	}
	w.waitForDeletion(all...)
}

func TestClusterRetention_RemovesNamespacesByLabelAndAge(t *testing.T) {
	w := newEnv(t)
	preview, other := w.createNamespace("preview", map[string]string{"stage": w.ns}), w.createNamespace("other", nil)
	w.apply(`
kind: ClusterRetentionPolicy
metadata: {name: NS-secrets}
spec:
  mode: Enforce
  resources: [{apiGroups: [""], resources: [secrets]}]
  namespaceSelector: {matchLabels: {stage: NS}}
  matchConditions: [{name: temporary, expression: "object.?metadata.labels.tmp.orValue('no') == 'yes'"}]
  maxAge: 1s`)
	var secrets []*unstructured.Unstructured
	for _, c := range []struct{ namespace, tmp string }{{preview.GetName(), "yes"}, {preview.GetName(), "no"}, {other.GetName(), "yes"}} {
		secrets = append(secrets, w.apply(fmt.Sprintf("kind: Secret\nmetadata: {name: s-%s, namespace: %s, labels: {tmp: %q}}", c.tmp, c.namespace, c.tmp)))
	}
	w.waitForDeletion(secrets[0])
	w.expectLive(secrets[1:]...)
	w.patch(other, `{"metadata": {"labels": {"stage": "`+w.ns+`"}}}`) // from now on, it is selected
	w.waitForDeletion(secrets[2])
	w.expectLive(secrets[1])
	w.apply(`
kind: ClusterRetentionPolicy
metadata: {name: NS-previews}
spec:
  mode: Enforce
  resources: [{apiGroups: [""], resources: [namespaces]}]
  objectSelector: {matchLabels: {stage: NS}}
  maxAge: 3s`)
	w.waitForDeletion(secrets[1])
	if !apierrors.IsNotFound(w.getError(preview)) && w.get(preview).GetDeletionTimestamp() == nil {
		t.Error("the namespace was not deleted")
	}
}

func (w *env) createNamespace(name string, labels map[string]string) *unstructured.Unstructured {
	w.Helper()
	o := named("Namespace", w.ns+"-"+name)
	o.SetLabels(labels)
	created, err := w.client(o).Create(w.Context(), o, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { w.forceDelete(created) })
	return created
}

func (w *env) getError(o *unstructured.Unstructured) error {
	_, err := w.client(o).Get(w.Context(), o.GetName(), metav1.GetOptions{})
	return err
}

// P-05: what nothing refers to is removed after that was observed for the time.
func TestRetention_RemovesUnusedConfiguration(t *testing.T) {
	w := newEnv(t)
	used, unused, mounted := w.createObject("Secret", "used", nil), w.createObject("Secret", "unused", nil), w.createObject("Secret", "mounted", nil)
	w.createIdlePod("user", map[string]any{"volumes": []any{map[string]any{"name": "v", "secret": map[string]any{"secretName": "used"}}}})
	w.apply("kind: ServiceAccount\nmetadata: {name: puller}\nimagePullSecrets: [{name: mounted}]")
	p := w.retention("unused", "Monitor", "/secrets", "unreferencedFor: 1m")
	w.eventually(func() error {
		s := statusOf(t, w.get(p))
		if ptr.Deref(s.Selected, -1) != 3 || s.Kept["InUse"] != 2 || len(s.NextRemovals) != 1 || s.NextRemovals[0].Name != "unused" {
			return fmt.Errorf("status: %+v", s)
		}
		return nil
	})
	w.patch(p, `{"spec": {"mode": "Enforce"}}`)
	w.waitForDeletion(unused)
	w.expectLive(used, mounted)
}

// A policy whose expression fails keeps what it may select.
func TestClusterRetention_ThatCanNotBeEvaluatedKeeps(t *testing.T) {
	w := newEnv(t)
	o := w.createObject("Secret", "s", nil)
	broken := w.apply(`
kind: ClusterRetentionPolicy
metadata: {name: NS-broken}
spec:
  mode: Enforce
  resources: [{apiGroups: [""], resources: [secrets]}]
  objectSelector: {matchLabels: {by: NS}}
  matchConditions: [{name: broken, expression: "object.spec.missing > 1"}]
  maxAge: 1s`)
	w.patch(o, `{"metadata": {"labels": {"by": "`+w.ns+`"}}}`)
	w.waitForEnforcing(broken)
	s := w.waitForMonitor(broken, 1, 0)
	if s.Kept["Protected"] != 1 {
		t.Errorf("kept: %v", s.Kept)
	}
	w.patch(broken, `{"spec": {"matchConditions": [{"name": "broken", "expression": "object."}]}}`)
	w.waitForCondition(broken, v1alpha1.ConditionAccepted, metav1.ConditionFalse, "Invalid", `matchConditions "broken" can't be read`)
	w.waitForCondition(broken, v1alpha1.ConditionEnforcing, metav1.ConditionFalse, "NotAccepted", "nothing is removed")
	w.expectLive(o)
}
