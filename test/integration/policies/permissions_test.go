package policies

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// echoModule is a module that returns its whole request as the reason.
const echoModule = `
kind: PolicyModule
metadata: {name: telling}
spec:
  rego:
    inline: |
      package gleaner
      collect := {"decision": "Orphan", "reason": substring(json.marshal([input.object, input.withheld]), 0, 1000)}`

// requestOf evaluates a policy of the test's namespace for an object that contains a secret,
// and returns the request of its module.
func (w *env) requestOf(account string) string {
	w.Helper()
	w.applyPolicy(echoModule)
	w.applyPolicy(`
kind: GCPolicy
metadata: {name: telling}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: telling}
  mode: Enforce` + account)
	owner := w.createConfigMap("owner")
	w.apply(`{kind: ConfigMap, metadata: {name: told}, data: {password: hunter2}}`)
	received := w.get(w.apply(`
kind: ConfigMap
metadata: {name: told, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: "` + string(owner.GetUID()) + `"}]}
data: {password: hunter2}`))
	w.delete(owner)
	return w.expectKept(received, "KeptByPolicy").Evaluations[0].Reason
}

func TestTenantModule_SeesWhatItsServiceAccountMayRead(t *testing.T) {
	w := newEnv(t)
	w.createReader("configmaps")
	if reason := w.requestOf("\n  serviceAccount: {name: reader}"); !strings.Contains(reason, "hunter2") || !strings.HasSuffix(reason, "[]]") {
		t.Errorf("request: %s", reason)
	}
}

func TestTenantModule_NeedingTheReference_SeesNothingElse(t *testing.T) {
	w := newEnv(t)
	if reason := w.requestOf("\n  needs: Reference"); strings.Contains(reason, "hunter2") || !strings.Contains(reason, `"object"`) {
		t.Errorf("request: %s", reason)
	}
}

func TestModule_NeedingMetadata_SeesNothingElse(t *testing.T) {
	w := newEnv(t)
	w.createReader("configmaps")
	reason := w.requestOf("\n  needs: Metadata\n  serviceAccount: {name: reader}")
	if strings.Contains(reason, "hunter2") || !strings.HasSuffix(reason, `["object"]]`) || !strings.Contains(reason, "creationTimestamp") {
		t.Errorf("request: %s", reason)
	}
}

// byLabelModule keeps objects with a label, and abstains from all others.
const byLabelModule = `
kind: PolicyModule
metadata: {name: by-label}
spec:
  rego:
    inline: |
      package gleaner
      default collect := {"decision": "Abstain"}
      collect := {"decision": "Orphan"} if input.object.metadata.labels.keep == "true"
---
kind: GCPolicy
metadata: {name: by-label}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: by-label}
  mode: Enforce
  onFault: Default`

// applyByLabel applies byLabelModule, and returns its policy and an object that it keeps.
func (w *env) applyByLabel(spec string) (policy, kept *unstructured.Unstructured) {
	w.Helper()
	module, text, _ := strings.Cut(byLabelModule, "---")
	w.applyPolicy(module)
	policy = w.applyPolicy(text + spec)
	w.waitForCondition(policy, "ModuleReady", metav1.ConditionTrue, "Ready", "")
	owner := w.createConfigMap("owner")
	kept = w.createConfigMap("kept", owner)
	w.patch(kept, `{"metadata": {"labels": {"keep": "true"}}}`)
	w.delete(owner)
	return policy, kept
}

// TestTenantPolicy_KeepsUnreadableObjects: the module might keep the object because
// of a field that is withheld. This is not a fault of the module, so onFault: Default does
// not apply.
func TestTenantPolicy_KeepsUnreadableObjects(t *testing.T) {
	for claim, tc := range map[string]struct{ spec, advice string }{
		"an account that may not read it": {"\n  serviceAccount: {name: reader}", "grant its service account get"},
		"a missing account":               {"\n  serviceAccount: {name: missing}", "grant its service account get"},
		"no account":                      {"", "set one that may get the object, or set needs: Reference"},
		"no account, for the metadata":    {"\n  needs: Metadata", "set one that may get the object, or set needs: Reference"},
	} {
		t.Run(claim, func(t *testing.T) {
			w := newEnv(t)
			w.createReader("secrets")
			p, kept := w.applyByLabel(tc.spec)
			e := w.expectKept(kept, "PolicyFault")
			if !strings.Contains(e.Evaluations[0].Fault, "may not read the object") || e.Evaluations[0].Decision != "" {
				t.Errorf("recorded: %+v", e.Evaluations[0])
			}
			w.waitForCondition(p, "Enforcing", metav1.ConditionFalse, "ObjectWithheld", tc.advice)
			w.waitForEvent(p, "ObjectWithheld", "objects are kept that it can't decide about")
		})
	}
}

func TestFinalizer_KeepsUnreadableObjects(t *testing.T) {
	w := newEnv(t)
	f := w.applyFinalizer("done", `finalize := {"decision": "Done"} if not input.object.data.keep`, "needs: Object")
	o := w.createWithFinalizers("o", w.finalizerName("done"))
	w.delete(o)
	w.waitForStuck(f, o, "Error", "may not read the object: it has no serviceAccount")
	w.waitForCondition(f, "Enforcing", metav1.ConditionFalse, "ObjectWithheld", "set one that may get the object, or set needs: Reference")
	w.waitForEvent(f, "ObjectWithheld", "objects are kept")
	w.patch(f, `{"spec": {"needs": "Reference"}}`)
	w.waitForDeletion(o)
	w.waitForCondition(f, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
}

func TestFinalizer_WhoseModuleReadsNoObjectNeedsNoAccount(t *testing.T) {
	w := newEnv(t)
	f := w.applyFinalizer("done", doneModule, "needs: Object")
	o := w.createWithFinalizers("o", w.finalizerName("done"))
	w.delete(o)
	w.waitForDeletion(o)
	w.waitForCondition(f, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
}

func TestRevokedRole_KeepsProtection(t *testing.T) {
	w := newEnv(t)
	binding := w.createReader("configmaps")
	p, kept := w.applyByLabel("\n  serviceAccount: {name: reader}")
	w.expectKept(kept, "KeptByPolicy")
	w.forceDelete(binding)
	owner := w.createConfigMap("second-owner")
	dropped := w.createConfigMap("dropped", owner)
	w.delete(owner)
	w.expectKept(dropped, "PolicyFault")
	w.waitForCondition(p, "Enforcing", metav1.ConditionFalse, "ObjectWithheld", "configmaps")
	w.createReader("configmaps")
	w.waitForDeletion(dropped)
	w.expectKept(kept, "KeptByPolicy")
}

func TestTenantPolicy_WithoutReadPermission_IsReported(t *testing.T) {
	w := newEnv(t)
	w.createReader("secrets")
	p := w.applyPolicy(`
kind: GCPolicy
metadata: {name: looking}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  matchConditions: [{name: any, expression: "true"}]
  fixed: {propagate: {decision: Orphan}}
  serviceAccount: {name: reader}
  mode: Enforce`)
	object := w.createConfigMap("object")
	w.eventually(func() error {
		if finalizers := w.get(object).GetFinalizers(); len(finalizers) != 1 {
			return errorf("object that the policy may govern has no hold: %v", finalizers)
		}
		return nil
	})
	w.waitForCondition(p, "Enforcing", metav1.ConditionFalse, "ObjectWithheld", "grant its service account get on what resources names")
}

// readModule is a module that reads a Secret, and returns the result as its reason.
const readModule = `
kind: %s
metadata: {name: reading-NS}
spec:
  rego:
    inline: |
      package gleaner
      collect := {"decision": "Act", "intents": [
        {"id": "own", "get": {"apiVersion": "v1", "kind": "Secret", "namespace": "NS", "name": "secret"}},
        {"id": "other", "get": {"apiVersion": "v1", "kind": "Secret", "namespace": "OTHER", "name": "secret"}},
        {"id": "all", "list": {"apiVersion": "v1", "kind": "Secret"}},
        {"id": "map", "get": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "NS", "name": "missing"}},
      ]} if { input.round == 1 }
      collect := {"decision": "Orphan", "reason": concat(" ", [sprintf("%%s=%%s", [id, said(r)]) | some id, r in input.results])} if { input.round == 2 }
      said(r) := r.error.reason if r.error
      said(r) := base64.decode(r.object.data.a) if r.object
      said(r) := sprintf("%%d", [count(r.list.items)]) if r.list`

func (w *env) readResults(module, policy, other string) map[string]string {
	w.Helper()
	text := strings.ReplaceAll(strings.ReplaceAll(readModule, "OTHER", other), "%s\nmetadata", module+"\nmetadata")
	w.applyPolicy(strings.ReplaceAll(text, "%%", "%"))
	w.applyPolicy(strings.ReplaceAll(policy, "OTHER", other))
	w.apply(`{kind: Secret, metadata: {name: secret}, stringData: {a: mine}}`)
	owner := w.createConfigMap("owner")
	received := w.createConfigMap("told", owner)
	w.delete(owner)
	secret := map[string]string{}
	for _, word := range strings.Fields(w.expectKept(received, "KeptByPolicy").Evaluations[0].Reason) {
		id, what, _ := strings.Cut(word, "=")
		secret[id] = what
	}
	return secret
}

// createOtherNamespace creates the namespace of another tenant, with a Secret.
func (w *env) createOtherNamespace() string {
	w.Helper()
	other := w.ns + "-x"
	w.apply(`{kind: Namespace, metadata: {name: ` + other + `}}`)
	w.apply(`{kind: Secret, metadata: {name: secret, namespace: ` + other + `}, stringData: {a: theirs}}`)
	return other
}

func TestTenantModule_ReadsGrantedObjects_InItsNamespace(t *testing.T) {
	w := newEnv(t)
	w.createReader("secrets")
	secret := w.readResults("PolicyModule", `
kind: GCPolicy
metadata: {name: reading}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  needs: Reference
  module: {name: reading-NS}
  serviceAccount: {name: reader}
  grants: {read: [{apiGroups: [""], resources: [secrets]}]}
  mode: Enforce`, w.createOtherNamespace())
	for id, want := range map[string]string{"own": "mine", "other": "NotGranted", "all": "NotGranted", "map": "NotGranted"} {
		if secret[id] != want {
			t.Errorf("%s: got %q, want %q", id, secret[id], want)
		}
	}
}

func TestClusterPolicy_ReadsAsItsServiceAccount(t *testing.T) {
	w := newEnv(t)
	w.createReader("secrets")
	secret := w.readResults("ClusterPolicyModule", `
kind: ClusterGCPolicy
metadata: {name: reading-NS}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  needs: Reference
  module: {name: reading-NS}
  serviceAccount: {namespace: NS, name: reader}
  grants: {read: [{apiGroups: [""], resources: [secrets, configmaps], namespaces: ["*"]}]}
  mode: Enforce`, w.createOtherNamespace())
	for id, want := range map[string]string{"own": "mine", "other": "Forbidden", "all": "Forbidden", "map": "Forbidden"} {
		if secret[id] != want {
			t.Errorf("%s: got %q, want %q", id, secret[id], want)
		}
	}
}

func TestDecision_IsReportedAsAnEvent(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(`
kind: GCPolicy
metadata: {name: keep}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Orphan, reason: it is data}}
  mode: Enforce`)
	owner := w.createConfigMap("owner")
	kept := w.createConfigMap("kept", owner)
	w.delete(owner)
	w.expectKept(kept, "KeptByPolicy")
	w.waitForEvent(kept, "KeptByPolicy", "GCPolicy "+w.ns+"/keep: Orphan (it is data)")
}

// waitForEvent waits for an event about an object.
func (w *env) waitForEvent(about *unstructured.Unstructured, reason, message string) {
	w.Helper()
	events := w.objects.Resource(resources["Event"]).Namespace(w.ns)
	w.eventually(func() error {
		list, err := events.List(w.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(about.GetUID())})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			r, _, _ := unstructured.NestedString(e.Object, "reason")
			m, _, _ := unstructured.NestedString(e.Object, "message")
			if r == reason && strings.Contains(m, message) {
				return nil
			}
		}
		return errorf("%d events", len(list.Items))
	})
}

func TestPolicy_CountsItsDecisions(t *testing.T) {
	w := newEnv(t)
	p := w.applyPolicy(`
kind: GCPolicy
metadata: {name: keep}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	owner := w.createConfigMap("owner")
	kept := w.createConfigMap("kept", owner)
	w.delete(owner)
	w.expectKept(kept, "KeptByPolicy")
	w.eventually(func() error {
		n, _, _ := unstructured.NestedInt64(w.get(p).Object, "status", "decisions", "Orphan")
		if n == 0 {
			return errorf("counted %d", n)
		}
		return nil
	})
}
