package policies

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// telling is a module that tells all that it is told, as its reason.
const telling = `
kind: PolicyModule
metadata: {name: telling}
spec:
  rego:
    inline: |
      package gleaner
      collect := {"decision": "Orphan", "reason": substring(json.marshal([input.object, input.withheld]), 0, 1000)}`

// tells has a policy of the test's namespace decide about an object with a secret
// in it, and returns what its module was told.
func (w *world) tells(account string) string {
	w.Helper()
	w.policy(telling)
	w.policy(`
kind: GCPolicy
metadata: {name: telling}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: telling}
  mode: Enforce` + account)
	owner := w.make("owner")
	w.apply(`{kind: ConfigMap, metadata: {name: told}, data: {password: hunter2}}`)
	told := w.get(w.apply(`
kind: ConfigMap
metadata: {name: told, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: "` + string(owner.GetUID()) + `"}]}
data: {password: hunter2}`))
	w.delete(owner)
	return w.stays(told, "KeptByPolicy").Asked[0].Reason
}

func TestATenantsModuleSeesWhatItsServiceAccountMayRead(t *testing.T) {
	w := newWorld(t)
	w.reader("configmaps")
	if reason := w.tells("\n  serviceAccount: {name: reader}"); !strings.Contains(reason, "hunter2") || !strings.HasSuffix(reason, "[]]") {
		t.Errorf("told: %s", reason)
	}
}

func TestATenantsModuleThatNeedsTheReferenceAloneSeesNothingElse(t *testing.T) {
	w := newWorld(t)
	if reason := w.tells("\n  needs: Reference"); strings.Contains(reason, "hunter2") || !strings.Contains(reason, `"object"`) {
		t.Errorf("told: %s", reason)
	}
}

func TestAModuleThatNeedsTheMetadataSeesAllOfThatAndNothingElse(t *testing.T) {
	w := newWorld(t)
	w.reader("configmaps")
	reason := w.tells("\n  needs: Metadata\n  serviceAccount: {name: reader}")
	if strings.Contains(reason, "hunter2") || !strings.HasSuffix(reason, `["object"]]`) || !strings.Contains(reason, "creationTimestamp") {
		t.Errorf("told: %s", reason)
	}
}

// byLabel keeps what has a label, and says nothing about the rest.
const byLabel = `
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

// labeled applies byLabel, and returns its policy and an object that it is to keep.
func (w *world) labeled(spec string) (policy, kept *unstructured.Unstructured) {
	w.Helper()
	module, text, _ := strings.Cut(byLabel, "---")
	w.policy(module)
	policy = w.policy(text + spec)
	w.says(policy, "ModuleReady", metav1.ConditionTrue, "Ready", "")
	owner := w.make("owner")
	kept = w.make("kept", owner)
	w.patch(kept, `{"metadata": {"labels": {"keep": "true"}}}`)
	w.delete(owner)
	return policy, kept
}

// TestAnObjectIsKeptThatATenantsPolicyMayNotRead: what a module does not see may be what it
// would keep the object for, and no module is to blame for that, so onFault: Default does
// not count.
func TestAnObjectIsKeptThatATenantsPolicyMayNotRead(t *testing.T) {
	for claim, tc := range map[string]struct{ spec, advice string }{
		"an account that may not read it": {"\n  serviceAccount: {name: reader}", "grant its service account get"},
		"an account that there is not":    {"\n  serviceAccount: {name: missing}", "grant its service account get"},
		"no account":                      {"", "write one that may get it, or needs: Reference"},
		"no account, for the metadata":    {"\n  needs: Metadata", "write one that may get it, or needs: Reference"},
	} {
		t.Run(claim, func(t *testing.T) {
			w := newWorld(t)
			w.reader("secrets")
			p, kept := w.labeled(tc.spec)
			e := w.stays(kept, "PolicyAtFault")
			if !strings.Contains(e.Asked[0].Fault, "may not read the object") || e.Asked[0].Decision != "" {
				t.Errorf("recorded: %+v", e.Asked[0])
			}
			w.says(p, "Enforcing", metav1.ConditionFalse, "ObjectWithheld", tc.advice)
			w.event(p, "ObjectWithheld", "objects are kept that it can't decide about")
		})
	}
}

func TestAFinalizerKeepsTheObjectsThatItMayNotRead(t *testing.T) {
	w := newWorld(t)
	f := w.finalizer("done", done, "needs: Object")
	o := w.carrying("o", w.entry("done"))
	w.delete(o)
	w.stuck(f, o, "Unreachable", "it may not read the object: it names no serviceAccount")
	w.says(f, "Enforcing", metav1.ConditionFalse, "ObjectWithheld", "write one that may get it, or needs: Reference")
	w.event(f, "ObjectWithheld", "objects are kept")
	w.patch(f, `{"spec": {"needs": "Reference"}}`)
	w.goes(o)
	w.says(f, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
}

func TestRevokingARoleEndsNoProtection(t *testing.T) {
	w := newWorld(t)
	binding := w.reader("configmaps")
	p, kept := w.labeled("\n  serviceAccount: {name: reader}")
	w.stays(kept, "KeptByPolicy")
	w.remove(binding)
	owner := w.make("second-owner")
	dropped := w.make("dropped", owner)
	w.delete(owner)
	w.stays(dropped, "PolicyAtFault")
	w.says(p, "Enforcing", metav1.ConditionFalse, "ObjectWithheld", "configmaps")
	w.reader("configmaps")
	w.goes(dropped)
	w.stays(kept, "KeptByPolicy")
}

func TestATenantsPolicyThatMayNotReadWhatItIsToHoldSaysSo(t *testing.T) {
	w := newWorld(t)
	w.reader("secrets")
	p := w.policy(`
kind: GCPolicy
metadata: {name: looking}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  matchConditions: [{name: any, expression: "true"}]
  fixed: {propagate: {decision: Orphan}}
  serviceAccount: {name: reader}
  mode: Enforce`)
	object := w.make("object")
	w.eventually(func() error {
		if finalizers := w.get(object).GetFinalizers(); len(finalizers) != 1 {
			return errorf("it may be one that the policy is for, and has no hold: %v", finalizers)
		}
		return nil
	})
	w.says(p, "Enforcing", metav1.ConditionFalse, "ObjectWithheld", "grant its service account get on what resources names")
}

// reading is a module that reads a Secret, and says what came of that.
const reading = `
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

func (w *world) reads(module, policy, other string) map[string]string {
	w.Helper()
	text := strings.ReplaceAll(strings.ReplaceAll(reading, "OTHER", other), "%s\nmetadata", module+"\nmetadata")
	w.policy(strings.ReplaceAll(text, "%%", "%"))
	w.policy(strings.ReplaceAll(policy, "OTHER", other))
	w.apply(`{kind: Secret, metadata: {name: secret}, stringData: {a: mine}}`)
	owner := w.make("owner")
	told := w.make("told", owner)
	w.delete(owner)
	said := map[string]string{}
	for _, word := range strings.Fields(w.stays(told, "KeptByPolicy").Asked[0].Reason) {
		id, what, _ := strings.Cut(word, "=")
		said[id] = what
	}
	return said
}

// elsewhere is another tenant's namespace, with a Secret.
func (w *world) elsewhere() string {
	w.Helper()
	other := w.ns + "-x"
	w.apply(`{kind: Namespace, metadata: {name: ` + other + `}}`)
	w.apply(`{kind: Secret, metadata: {name: secret, namespace: ` + other + `}, stringData: {a: theirs}}`)
	return other
}

func TestATenantsModuleReadsWhatIsGrantedInItsOwnNamespace(t *testing.T) {
	w := newWorld(t)
	w.reader("secrets")
	said := w.reads("PolicyModule", `
kind: GCPolicy
metadata: {name: reading}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  needs: Reference
  module: {name: reading-NS}
  serviceAccount: {name: reader}
  grants: {read: [{apiGroups: [""], resources: [secrets]}]}
  mode: Enforce`, w.elsewhere())
	for id, want := range map[string]string{"own": "mine", "other": "NotGranted", "all": "NotGranted", "map": "NotGranted"} {
		if said[id] != want {
			t.Errorf("%s: got %q, want %q", id, said[id], want)
		}
	}
}

func TestAClusterPolicyReadsWithTheRightsOfItsServiceAccount(t *testing.T) {
	w := newWorld(t)
	w.reader("secrets")
	said := w.reads("ClusterPolicyModule", `
kind: ClusterGCPolicy
metadata: {name: reading-NS}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  needs: Reference
  module: {name: reading-NS}
  serviceAccount: {namespace: NS, name: reader}
  grants: {read: [{apiGroups: [""], resources: [secrets, configmaps], namespaces: ["*"]}]}
  mode: Enforce`, w.elsewhere())
	for id, want := range map[string]string{"own": "mine", "other": "Forbidden", "all": "Forbidden", "map": "Forbidden"} {
		if said[id] != want {
			t.Errorf("%s: got %q, want %q", id, said[id], want)
		}
	}
}

func TestADecisionIsToldOnTheObject(t *testing.T) {
	w := newWorld(t)
	w.policy(`
kind: GCPolicy
metadata: {name: keep}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Orphan, reason: it is data}}
  mode: Enforce`)
	owner := w.make("owner")
	kept := w.make("kept", owner)
	w.delete(owner)
	w.stays(kept, "KeptByPolicy")
	w.event(kept, "KeptByPolicy", "GCPolicy "+w.ns+"/keep: Orphan (it is data)")
}

// event waits for an event about an object.
func (w *world) event(about *unstructured.Unstructured, reason, message string) {
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

func TestAPolicyCountsItsDecisions(t *testing.T) {
	w := newWorld(t)
	p := w.policy(`
kind: GCPolicy
metadata: {name: keep}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	owner := w.make("owner")
	kept := w.make("kept", owner)
	w.delete(owner)
	w.stays(kept, "KeptByPolicy")
	w.eventually(func() error {
		n, _, _ := unstructured.NestedInt64(w.get(p).Object, "status", "decisions", "Orphan")
		if n == 0 {
			return errorf("counted %d", n)
		}
		return nil
	})
}
