package policies

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

func TestRetainHook_AFixedVerdictKeepsWhatItSelects(t *testing.T) {
	w := newEnv(t)
	looking, old := w.createObject("Secret", "looking", map[string]string{"debug": "true"}), w.createObject("Secret", "old", nil)
	keeping := w.applyPolicy(`
kind: GCPolicy
metadata: {name: debug}
spec:
  mode: Enforce
  resources: [{apiGroups: [""], resources: [secrets]}]
  objectSelector: {matchLabels: {debug: "true"}}
  fixed: {retain: {decision: Keep, reason: under investigation}}`)
	p := w.retention("old", "Enforce", "/secrets", "maxAge: 1s")
	w.waitForDeletion(old)
	if e := w.expectKept(looking, "KeptByPolicy"); e.Policy != "GCPolicy "+w.ns+"/debug" || len(e.Evaluations) != 1 || e.Evaluations[0].Hook != "retain" || e.NextAttempt == nil {
		t.Errorf("recorded %+v", e)
	}
	w.waitForCondition(p, v1alpha1.ConditionEnforcing, metav1.ConditionTrue, "Enforcing",
		"another policy keeps Secret "+w.ns+"/looking: GCPolicy "+w.ns+"/debug: under investigation")
	w.eventually(func() error {
		if s := statusOf(t, w.get(p)); s.Kept["Policy"] != 1 || ptr.Deref(s.Due, -1) != 0 || len(s.NextRemovals) != 0 {
			return errorf("status %+v", s)
		}
		return nil
	})
	w.patch(keeping, `{"spec": {"mode": "Monitor"}}`)
	w.waitForDeletion(looking)
	if e := w.waitForDecision(looking, "RemovedByRetention"); len(e.Evaluations) != 1 || e.Evaluations[0].Decision != "Keep" {
		t.Errorf("recorded %+v; want what the policy in mode Monitor would have done", e)
	}
}

func TestRetainHook_AModuleReadsOthersAndDecides(t *testing.T) {
	w := newEnv(t)
	w.applyModule("release", `
retain := {"decision": "Act", "intents": [{"id": "all", "list": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": input.object.metadata.namespace}}]} if not input.results.all

else := {"decision": "Remove"} if "release" in {item.metadata.name | some item in input.results.all.list.items}

else := {"decision": "Keep", "after": "1s", "reason": sprintf("%s of %s/%s: there is no release", [input.retention.limit, input.retention.namespace, input.retention.policy])}`)
	w.applyPolicy(`
kind: GCPolicy
metadata: {name: release}
spec:
  mode: Enforce
  resources: [{apiGroups: [""], resources: [configmaps]}]
  objectSelector: {matchLabels: {tier: old}}
  module: {name: release}
  ` + strings.ReplaceAll(w.readerSpec(), "\n", "\n  ") + `
  grants: {read: [{apiGroups: [""], resources: [configmaps]}]}`)
	o := w.createObject("ConfigMap", "settings", map[string]string{"tier": "old"})
	w.retention("old", "Enforce", "/configmaps", "objectSelector: {matchLabels: {tier: old}}\nmaxAge: 1s")
	if e := w.expectKept(o, "KeptByPolicy"); !strings.Contains(e.String(), "MaxAge of "+w.ns+"/old: there is no release") {
		t.Errorf("recorded %s", e)
	}
	w.createConfigMap("release")
	w.waitForDeletion(o)
}

// What can't be decided about stays.
func TestRetainHook_AModuleThatFailsKeepsTheObject(t *testing.T) {
	w := newEnv(t)
	w.applyModule("broken", `retain := {"decision": "Delete"}`)
	policy := w.applyPolicy(`
kind: GCPolicy
metadata: {name: broken}
spec:
  mode: Enforce
  resources: [{apiGroups: [""], resources: [secrets]}]
  module: {name: broken}
  needs: Reference`)
	o := w.createObject("Secret", "old", nil)
	p := w.retention("old", "Enforce", "/secrets", "maxAge: 1s")
	w.expectKept(o, "PolicyFault")
	w.waitForCondition(p, v1alpha1.ConditionEnforcing, metav1.ConditionFalse, "RemovalsFailing", `decision is "Delete": write Remove, Keep, Act or Abstain`)
	w.patch(policy, `{"spec": {"onFault": "Default"}}`)
	w.waitForDeletion(o)
}

// requestRemoval asks whether an image can be removed from the Node with the name of the namespace, and returns the request with its answer.
func (w *env) requestRemoval(name, image string) v1alpha1.ImageRemovalRequestStatus {
	w.Helper()
	o := w.apply(`
kind: ImageRemovalRequest
metadata: {name: NS-` + name + `}
spec: {nodeName: NS, policy: full, limit: Usage, image: {id: "sha256:` + name + `", names: ["` + image + `"], labels: {team: shop}, sizeBytes: 7, firstSeen: "2026-01-02T03:04:05Z"}}`)
	var status v1alpha1.ImageRemovalRequestStatus
	w.eventually(func() error {
		fields, _, _ := unstructured.NestedMap(w.get(o).Object, "status")
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &status); err != nil {
			return err
		}
		if status.Decision == "" {
			return errorf("there is no answer")
		}
		return nil
	})
	return status
}

func TestRetainHook_AModuleKeepsImagesOnNodes(t *testing.T) {
	w := newEnv(t)
	node := w.apply("{kind: Node, metadata: {name: NS, labels: {pool: NS}}, spec: {taints: [{key: test.gleaner.dev/without-kubelet, effect: NoSchedule}]}}")
	w.apply(`
kind: Deployment
metadata: {name: web}
spec: {replicas: 0, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: "registry.example.com/NS:1"}]}}}`)
	module := w.applyPolicy(`
kind: ClusterPolicyModule
metadata: {name: NS-images}
spec:
  rego:
    inline: |
      package gleaner

      retain := {"decision": "Keep", "after": "1h", "reason": sprintf("%s %s of %s", [w.kind, w.name, input.image.labels.team])} if some w in input.image.workloads
      else := {"decision": "Abstain"}`)
	w.waitForCondition(module, "Compiled", metav1.ConditionTrue, "Compiled", "retain")
	p := w.applyPolicy(`
kind: ClusterGCPolicy
metadata: {name: NS-images}
spec:
  mode: Enforce
  resources: [{apiGroups: [""], resources: [nodes]}]
  objectSelector: {matchLabels: {pool: NS}}
  module: {name: NS-images}
  needs: Reference`)
	w.waitForCondition(p, "ModuleReady", metav1.ConditionTrue, "Ready", "")
	kept := w.requestRemoval("a", "registry.example.com/"+w.ns+":1")
	if want := (v1alpha1.ImageRemovalRequestStatus{Decision: v1alpha1.ImageKeep, DecidedBy: "ClusterGCPolicy " + w.ns + "-images", Reason: "Deployment web of shop", After: "1h0m0s"}); kept != want {
		t.Errorf("answer %+v, want %+v", kept, want)
	}
	if e := w.waitForDecision(node, "KeptByPolicy"); !strings.Contains(e.Message, "image registry.example.com/"+w.ns+":1, which NodeRetentionPolicy full removes: Usage") {
		t.Errorf("recorded %+v", e)
	}
	if removed := w.requestRemoval("b", "registry.example.com/"+w.ns+":2"); removed != (v1alpha1.ImageRemovalRequestStatus{Decision: v1alpha1.ImageRemove}) {
		t.Errorf("answer %+v, want Remove by the default", removed)
	}
	w.patch(node, `{"metadata": {"labels": {"pool": "other"}}}`)
	if removed := w.requestRemoval("c", "registry.example.com/"+w.ns+":1"); removed.Decision != v1alpha1.ImageRemove {
		t.Errorf("answer %+v for a node that the policy does not select", removed)
	}
}
