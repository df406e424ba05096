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

const keeping = "package gleaner\n\ncollect := {\"decision\": \"Orphan\"}\n"

// registryWith is a registry on loopback that has a Rego module, by tag v1. It
// returns the module's reference by digest.
func registryWith(t *testing.T) (server *httptest.Server, reference oci.Reference, digest string) {
	t.Helper()
	server = httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	reference, err := oci.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/policies/keeping:v1")
	if err != nil {
		t.Fatal(err)
	}
	artifact, err := oci.PackRego([]oci.File{{Name: "policy.rego", Data: []byte(keeping)}})
	if err != nil {
		t.Fatal(err)
	}
	digest, err = oci.NewRepository(server.Client(), reference, oci.Credential{}).Push(t.Context(), artifact, "v1")
	if err != nil {
		t.Fatal(err)
	}
	return server, reference, digest
}

// enforced governs the ConfigMaps of a test by a cluster's module.
const enforced = `
kind: ClusterGCPolicy
metadata: {name: keeping-NS}
spec:` + selecting + `
  module: {name: keeping-NS}
  mode: Enforce`

func (w *world) keeps() {
	w.Helper()
	owner := w.make("owner")
	kept := w.make("kept", owner)
	w.delete(owner)
	w.stays(kept, "KeptByPolicy")
}

func TestAModuleComesFromARegistryByItsDigestAndOutlivesIt(t *testing.T) {
	w := newWorld(t)
	server, reference, digest := registryWith(t)
	module := w.policy(`
kind: ClusterPolicyModule
metadata: {name: keeping-NS}
spec: {rego: {image: ` + reference.ByDigest(digest).String() + `}}`)
	w.says(module, "Fetched", metav1.ConditionTrue, "Fetched", "") // the policy names the digest in its status
	p := w.policy(enforced)
	w.says(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	server.Close()
	w.patch(p, `{"spec": {"priority": 7}}`)
	w.policyObserved(p)
	w.says(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	w.keeps()
}

func TestAPolicyThatDoesNotPinItsModuleIsNotEnforced(t *testing.T) {
	w := newWorld(t)
	_, reference, digest := registryWith(t)
	module := w.policy(`
kind: ClusterPolicyModule
metadata: {name: keeping-NS}
spec: {rego: {image: ` + reference.String() + `}}`)
	w.says(module, "Fetched", metav1.ConditionTrue, "FetchedUnpinned", "may have other content later")
	p := w.policy(strings.Replace(enforced, "name: keeping-NS}\n  mode", "name: keeping-NS, digest: none}\n  mode", 1))
	w.says(p, "ModuleReady", metav1.ConditionFalse, "ModuleNotPinned", "write module.digest: "+pins.Of(keeping))
	w.patch(p, `{"spec": {"mode": "Monitor"}}`)
	w.says(p, "ModuleReady", metav1.ConditionTrue, "Ready", "collect")
	w.patch(p, `{"spec": {"mode": "Enforce"}}`)
	w.patch(module, `{"spec": {"rego": {"image": "`+reference.ByDigest(digest).String()+`"}}}`)
	w.says(p, "ModuleReady", metav1.ConditionFalse, "ModuleNotPinned", "") // the digest of the image is not the author's word
	w.patch(p, `{"spec": {"module": {"digest": "`+pins.Of(keeping)+`"}}}`)
	w.says(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
}

// The editor of a module is not the author of the policies that name it.
func TestAnEditedModuleChangesNothingThatAPolicyEnforces(t *testing.T) {
	w := newWorld(t)
	module := w.policy(`
kind: ClusterPolicyModule
metadata: {name: keeping-NS}
spec: {rego: {inline: ` + quoted(keeping) + `}}`)
	p := w.policy(enforced)
	w.says(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	owner := w.make("owner")
	kept := w.make("kept", owner)
	edited := strings.ReplaceAll(keeping, "Orphan", "Delete")
	w.patch(module, `{"spec": {"rego": {"inline": `+quoted(edited)+`}}}`)
	w.says(p, "ModuleReady", metav1.ConditionFalse, "DigestMismatch", "write module.digest: "+pins.Of(edited))
	w.delete(owner)
	w.stays(kept, "PolicyAtFault")
	w.patch(module, `{"spec": {"rego": {"inline": `+quoted(keeping)+`}}}`)
	w.says(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	w.stays(kept, "KeptByPolicy")
}

func TestAModuleInAConfigMapFollowsIt(t *testing.T) {
	w := newWorld(t)
	module := w.policy(`
kind: PolicyModule
metadata: {name: keeping}
spec: {rego: {configMap: {name: source, key: policy.rego}}}`)
	w.says(module, "Fetched", metav1.ConditionFalse, "NotFound", "create it, or name another")
	w.apply("{kind: ConfigMap, metadata: {name: source}, data: {policy.rego: " + quoted("package gleaner\n\ncollect := {") + "}}")
	w.says(module, "Compiled", metav1.ConditionFalse, "DoesNotCompile", "")
	w.apply("{kind: ConfigMap, metadata: {name: source}, data: {policy.rego: " + quoted(keeping) + "}}")
	w.says(module, "Compiled", metav1.ConditionTrue, "Compiled", "it answers collect")
}

func TestAModuleThatIsAnotherThanItsDigestSaysIsNotAsked(t *testing.T) {
	w := newWorld(t)
	w.apply("{kind: ConfigMap, metadata: {name: source}, data: {policy.rego: " + quoted(keeping) + "}}")
	module := w.policy(`
kind: PolicyModule
metadata: {name: keeping}
spec:
  rego: {configMap: {name: source, key: policy.rego}}
  sha256: ` + strings.Repeat("a", 64))
	w.says(module, "Fetched", metav1.ConditionFalse, "DigestMismatch", "")
	p := w.policy(`
kind: GCPolicy
metadata: {name: keeping}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: keeping}
  mode: Enforce`)
	w.says(p, "ModuleReady", metav1.ConditionFalse, "DigestMismatch", "objects that it governs are kept")
}

func TestATenantsModuleIsNotFetchedFromPrivateAddresses(t *testing.T) {
	w := newWorld(t)
	_, reference, digest := registryWith(t)
	module := w.policy(`
kind: PolicyModule
metadata: {name: keeping}
spec: {rego: {image: ` + reference.ByDigest(digest).String() + `}}`)
	w.says(module, "Fetched", metav1.ConditionFalse, "Refused", "")
}

func TestAModuleWithoutAHookThatIsAskedIsNotReady(t *testing.T) {
	w := newWorld(t)
	w.policy(`
kind: PolicyModule
metadata: {name: keeping}
spec: {rego: {inline: "package gleaner\n\nvalidate := {\"decision\": \"Valid\"}"}}`)
	p := w.policy(`
kind: GCPolicy
metadata: {name: keeping}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: keeping}`)
	w.says(p, "ModuleReady", metav1.ConditionFalse, "MissingHook", "answers neither collect nor propagate")
}

func TestAPolicyThatCanNotBeReadIsNotAccepted(t *testing.T) {
	w := newWorld(t)
	p := w.policy(`
kind: GCPolicy
metadata: {name: keeping}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  matchConditions: [{name: wrong, expression: "object.metadata.name +"}]
  serviceAccount: {name: reader}
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	w.says(p, "Accepted", metav1.ConditionFalse, "Invalid", `matchConditions "wrong" can't be read`)
	owner := w.make("owner")
	held := w.make("held", owner)
	w.delete(owner)
	w.stays(held, "PolicyAtFault")
}

func TestAModuleThatPropagatesGovernsNothingThatCanNotBeHeld(t *testing.T) {
	w := newWorld(t)
	w.policy(`
kind: ClusterPolicyModule
metadata: {name: keeping-NS}
spec: {rego: {inline: "package gleaner\n\npropagate := {\"decision\": \"Orphan\"}"}}`)
	p := w.policy(`
kind: ClusterGCPolicy
metadata: {name: keeping-NS}
spec:
  resources: [{apiGroups: [""], resources: [pods]}]
  module: {name: keeping-NS}`)
	w.says(p, "Accepted", metav1.ConditionFalse, "NotGovernable", "can't govern pods")
}

func TestAPolicyThatNamesNoSuchResourceIsTold(t *testing.T) {
	w := newWorld(t)
	p := w.policy(`
kind: GCPolicy
metadata: {name: singular}
spec:
  resources: [{apiGroups: [apps], resources: [deployment, deployments]}]
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	w.says(p, "Accepted", metav1.ConditionTrue, "NotServed", "serves no deployment.apps: write resources in the plural")
	w.says(p, "Enforcing", metav1.ConditionFalse, "NotServed", "serves no deployment.apps: write resources in the plural")
	w.event(p, "NotServed", "serves no deployment.apps")
	w.patch(p, `{"spec": {"resources": [{"apiGroups": ["apps"], "resources": ["deployments"]}]}}`)
	w.says(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
}

func TestAPolicyOfANamespaceThatNamesWhatIsInNoneIsTold(t *testing.T) {
	w := newWorld(t)
	p := w.policy(`
kind: GCPolicy
metadata: {name: scope}
spec:
  resources: [{apiGroups: [""], resources: [configmaps, namespaces, persistentvolumes]}]
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	w.says(p, "Enforcing", metav1.ConditionFalse, "NotNamespaced", "write a ClusterGCPolicy")
	w.says(p, "Accepted", metav1.ConditionTrue, "NotNamespaced", "namespaces and persistentvolumes are in none: write a ClusterGCPolicy")
}

func TestWhatIsWrongWithAPolicyIsToldAsAnEvent(t *testing.T) {
	w := newWorld(t)
	p := w.policy(`
kind: GCPolicy
metadata: {name: broken}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: missing}`)
	w.event(p, "NotFound", "there is no PolicyModule "+w.ns+"/missing")
}

func TestOnlyTheHooksThatAPolicyNamesAreAsked(t *testing.T) {
	w := newWorld(t)
	w.policy(`
kind: PolicyModule
metadata: {name: both}
spec: {rego: {inline: "package gleaner\n\ncollect := {\"decision\": \"Orphan\"}\n\npropagate := {\"decision\": \"Orphan\"}"}}`)
	p := w.policy(`
kind: GCPolicy
metadata: {name: collects}
spec:
  resources: [{apiGroups: [""], resources: [configmaps, pods]}]
  module: {name: both}
  needs: Reference
  hooks: [collect]
  mode: Enforce`)
	w.says(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	w.says(p, "ModuleReady", metav1.ConditionTrue, "Ready", "it answers collect")
	owner := w.make("owner")
	kept := w.make("kept", owner)
	w.delete(owner)
	w.stays(kept, "KeptByPolicy")
	if finalizers := w.get(kept).GetFinalizers(); len(finalizers) != 0 {
		t.Errorf("it has finalizers: %v", finalizers)
	}
	w.patch(p, `{"spec": {"hooks": ["propagate"]}}`)
	w.says(p, "Accepted", metav1.ConditionFalse, "NotGovernable", "can't govern pods")
}
