package policies

import (
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/policies/source/oci"
	"github.com/gleaner-dev/gleaner/test/pins"
)

const keepModule = "package gleaner\n\ncollect := {\"decision\": \"Orphan\"}\n"

// newRegistry runs a registry on loopback with a Rego module, tagged v1. It
// returns the module's reference by digest.
func newRegistry(t *testing.T) (server *httptest.Server, reference oci.Reference, digest string) {
	t.Helper()
	server = httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	reference, err := oci.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/policies/keeping:v1")
	if err != nil {
		t.Fatal(err)
	}
	artifact, err := oci.PackRego([]oci.File{{Name: "policy.rego", Data: []byte(keepModule)}})
	if err != nil {
		t.Fatal(err)
	}
	digest, err = oci.NewRepository(server.Client(), reference, oci.Credential{}).Push(t.Context(), artifact, "v1")
	if err != nil {
		t.Fatal(err)
	}
	return server, reference, digest
}

// enforcedPolicy is a policy that governs the ConfigMaps of a test by a ClusterPolicyModule.
const enforcedPolicy = `
kind: ClusterGCPolicy
metadata: {name: keeping-NS}
spec:` + selectingPolicy + `
  module: {name: keeping-NS}
  mode: Enforce`

func (w *env) applyKeepPolicy() {
	w.Helper()
	owner := w.createConfigMap("owner")
	kept := w.createConfigMap("kept", owner)
	w.delete(owner)
	w.expectKept(kept, "KeptByPolicy")
}

func TestModule_FromARegistry_IsCachedByDigest(t *testing.T) {
	w := newEnv(t)
	server, reference, digest := newRegistry(t)
	module := w.applyPolicy(`
kind: ClusterPolicyModule
metadata: {name: keeping-NS}
spec: {rego: {image: ` + reference.ByDigest(digest).String() + `}}`)
	w.waitForCondition(module, "Fetched", metav1.ConditionTrue, "Fetched", "") // the policy reports the digest in its status
	p := w.applyPolicy(enforcedPolicy)
	w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	server.Close()
	w.patch(p, `{"spec": {"priority": 7}}`)
	w.waitForObserved(p)
	w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	w.applyKeepPolicy()
}

func TestPolicy_WithoutAPin_IsNotEnforced(t *testing.T) {
	w := newEnv(t)
	_, reference, digest := newRegistry(t)
	module := w.applyPolicy(`
kind: ClusterPolicyModule
metadata: {name: keeping-NS}
spec: {rego: {image: ` + reference.String() + `}}`)
	w.waitForCondition(module, "Fetched", metav1.ConditionTrue, "FetchedUnpinned", "may have other content later")
	p := w.applyPolicy(strings.Replace(enforcedPolicy, "name: keeping-NS}\n  mode", "name: keeping-NS, digest: none}\n  mode", 1))
	w.waitForCondition(p, "ModuleReady", metav1.ConditionFalse, "ModuleNotPinned", "write module.digest: "+pins.Of(keepModule))
	w.patch(p, `{"spec": {"mode": "Monitor"}}`)
	w.waitForCondition(p, "ModuleReady", metav1.ConditionTrue, "Ready", "collect")
	w.patch(p, `{"spec": {"mode": "Enforce"}}`)
	w.patch(module, `{"spec": {"rego": {"image": "`+reference.ByDigest(digest).String()+`"}}}`)
	w.waitForCondition(p, "ModuleReady", metav1.ConditionFalse, "ModuleNotPinned", "") // the digest in the image reference is not a pin in the policy
	w.patch(p, `{"spec": {"module": {"digest": "`+pins.Of(keepModule)+`"}}}`)
	w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
}

// Users who may edit a module may not be those who may edit the policies that use it.
func TestEditedModule_DoesNotChangeEnforcement(t *testing.T) {
	w := newEnv(t)
	module := w.applyPolicy(`
kind: ClusterPolicyModule
metadata: {name: keeping-NS}
spec: {rego: {inline: ` + quoteJSON(keepModule) + `}}`)
	p := w.applyPolicy(enforcedPolicy)
	w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	owner := w.createConfigMap("owner")
	kept := w.createConfigMap("kept", owner)
	edited := strings.ReplaceAll(keepModule, "Orphan", "Delete")
	w.patch(module, `{"spec": {"rego": {"inline": `+quoteJSON(edited)+`}}}`)
	w.waitForCondition(p, "ModuleReady", metav1.ConditionFalse, "DigestMismatch", "write module.digest: "+pins.Of(edited))
	w.delete(owner)
	w.expectKept(kept, "PolicyFault")
	w.patch(module, `{"spec": {"rego": {"inline": `+quoteJSON(keepModule)+`}}}`)
	w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	w.expectKept(kept, "KeptByPolicy")
}

func TestModule_InAConfigMap_IsUpdated(t *testing.T) {
	w := newEnv(t)
	module := w.applyPolicy(`
kind: PolicyModule
metadata: {name: keeping}
spec: {rego: {configMap: {name: source, key: policy.rego}}}`)
	w.waitForCondition(module, "Fetched", metav1.ConditionFalse, "NotFound", "create it, or name another")
	w.apply("{kind: ConfigMap, metadata: {name: source}, data: {policy.rego: " + quoteJSON("package gleaner\n\ncollect := {") + "}}")
	w.waitForCondition(module, "Compiled", metav1.ConditionFalse, "DoesNotCompile", "")
	w.apply("{kind: ConfigMap, metadata: {name: source}, data: {policy.rego: " + quoteJSON(keepModule) + "}}")
	w.waitForCondition(module, "Compiled", metav1.ConditionTrue, "Compiled", "it answers collect")
}

func TestModule_WithADigestMismatch_IsNotEvaluated(t *testing.T) {
	w := newEnv(t)
	w.apply("{kind: ConfigMap, metadata: {name: source}, data: {policy.rego: " + quoteJSON(keepModule) + "}}")
	module := w.applyPolicy(`
kind: PolicyModule
metadata: {name: keeping}
spec:
  rego: {configMap: {name: source, key: policy.rego}}
  sha256: ` + strings.Repeat("a", 64))
	w.waitForCondition(module, "Fetched", metav1.ConditionFalse, "DigestMismatch", "")
	p := w.applyPolicy(`
kind: GCPolicy
metadata: {name: keeping}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: keeping}
  mode: Enforce`)
	w.waitForCondition(p, "ModuleReady", metav1.ConditionFalse, "DigestMismatch", "objects that it governs are kept")
}

func TestTenantModule_IsNotFetchedFromPrivateAddresses(t *testing.T) {
	w := newEnv(t)
	_, reference, digest := newRegistry(t)
	module := w.applyPolicy(`
kind: PolicyModule
metadata: {name: keeping}
spec: {rego: {image: ` + reference.ByDigest(digest).String() + `}}`)
	w.waitForCondition(module, "Fetched", metav1.ConditionFalse, "AddressNotAllowed", "")
}

func TestModule_WithoutTheRequiredHook_IsNotReady(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(`
kind: PolicyModule
metadata: {name: keeping}
spec: {rego: {inline: "package gleaner\n\nvalidate := {\"decision\": \"Valid\"}"}}`)
	p := w.applyPolicy(`
kind: GCPolicy
metadata: {name: keeping}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: keeping}`)
	w.waitForCondition(p, "ModuleReady", metav1.ConditionFalse, "MissingHook", "answers none of collect, propagate, protect and retain")
}

func TestPolicy_ThatIsInvalid_IsNotAccepted(t *testing.T) {
	w := newEnv(t)
	p := w.applyPolicy(`
kind: GCPolicy
metadata: {name: keeping}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  matchConditions: [{name: wrong, expression: "object.metadata.name +"}]
  serviceAccount: {name: reader}
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	w.waitForCondition(p, "Accepted", metav1.ConditionFalse, "Invalid", `matchConditions "wrong" can't be read`)
	owner := w.createConfigMap("owner")
	held := w.createConfigMap("held", owner)
	w.delete(owner)
	w.expectKept(held, "PolicyFault")
}

func TestPropagate_CannotGovernPods(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(`
kind: ClusterPolicyModule
metadata: {name: keeping-NS}
spec: {rego: {inline: "package gleaner\n\npropagate := {\"decision\": \"Orphan\"}"}}`)
	p := w.applyPolicy(`
kind: ClusterGCPolicy
metadata: {name: keeping-NS}
spec:
  resources: [{apiGroups: [""], resources: [pods]}]
  module: {name: keeping-NS}`)
	w.waitForCondition(p, "Accepted", metav1.ConditionFalse, "NotGovernable", "can't govern pods")
}

func TestPolicy_WithAnUnknownResource_IsReported(t *testing.T) {
	w := newEnv(t)
	p := w.applyPolicy(`
kind: GCPolicy
metadata: {name: singular}
spec:
  resources: [{apiGroups: [apps], resources: [deployment, deployments]}]
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	w.waitForCondition(p, "Accepted", metav1.ConditionTrue, "NotServed", "serves no deployment.apps: write resources in the plural")
	w.waitForCondition(p, "Enforcing", metav1.ConditionFalse, "NotServed", "serves no deployment.apps: write resources in the plural")
	w.waitForEvent(p, "NotServed", "serves no deployment.apps")
	w.patch(p, `{"spec": {"resources": [{"apiGroups": ["apps"], "resources": ["deployments"]}]}}`)
	w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
}

func TestGCPolicy_WithClusterScopedResources_IsReported(t *testing.T) {
	w := newEnv(t)
	p := w.applyPolicy(`
kind: GCPolicy
metadata: {name: scope}
spec:
  resources: [{apiGroups: [""], resources: [configmaps, namespaces, persistentvolumes]}]
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	w.waitForCondition(p, "Enforcing", metav1.ConditionFalse, "NotNamespaced", "write a ClusterGCPolicy")
	w.waitForCondition(p, "Accepted", metav1.ConditionTrue, "NotNamespaced", "namespaces and persistentvolumes are in none: write a ClusterGCPolicy")
}

func TestPolicy_Problems_AreReportedAsEvents(t *testing.T) {
	w := newEnv(t)
	p := w.applyPolicy(`
kind: GCPolicy
metadata: {name: broken}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: missing}`)
	w.waitForEvent(p, "NotFound", "there is no PolicyModule "+w.ns+"/missing")
}

func TestPolicy_EvaluatesOnlyItsHooks(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(`
kind: PolicyModule
metadata: {name: both}
spec: {rego: {inline: "package gleaner\n\ncollect := {\"decision\": \"Orphan\"}\n\npropagate := {\"decision\": \"Orphan\"}"}}`)
	p := w.applyPolicy(`
kind: GCPolicy
metadata: {name: collects}
spec:
  resources: [{apiGroups: [""], resources: [configmaps, pods]}]
  module: {name: both}
  needs: Reference
  hooks: [collect]
  mode: Enforce`)
	w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	w.waitForCondition(p, "ModuleReady", metav1.ConditionTrue, "Ready", "it answers collect")
	owner := w.createConfigMap("owner")
	kept := w.createConfigMap("kept", owner)
	w.delete(owner)
	w.expectKept(kept, "KeptByPolicy")
	if finalizers := w.get(kept).GetFinalizers(); len(finalizers) != 0 {
		t.Errorf("object has finalizers %v", finalizers)
	}
	w.patch(p, `{"spec": {"hooks": ["propagate"]}}`)
	w.waitForCondition(p, "Accepted", metav1.ConditionFalse, "NotGovernable", "can't govern pods")
}
