package policies

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resourceOf returns the resource of a kind: a built-in one, or one that the test defined.
func (w *env) resourceOf(kind string) schema.GroupVersionResource {
	w.Helper()
	if resource, ok := w.custom[kind]; ok {
		return resource
	}
	resource, ok := resources[kind]
	if !ok {
		w.Fatalf("unknown kind %s", kind)
	}
	return resource
}

// registerDatabases registers the kind Database in the test's own API group. Its definition need not
// exist yet.
func (w *env) registerDatabases() (group string) {
	group = w.ns + ".example.com"
	w.custom = map[string]schema.GroupVersionResource{"Database": {Group: group, Version: "v1", Resource: "databases"}}
	return group
}

// createDatabaseCRD creates the definition of Database, and waits until it is served.
func (w *env) createDatabaseCRD() (crd *unstructured.Unstructured) {
	w.Helper()
	w.registerDatabases()
	crd = w.apply(`
kind: CustomResourceDefinition
metadata: {name: databases.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Database, plural: databases}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]`)
	w.eventually(func() error {
		_, err := w.objects.Resource(w.custom["Database"]).Namespace(w.ns).List(w.Context(), metav1.ListOptions{})
		return err
	})
	return crd
}

// createDatabase creates a Database with owners and a spec.
func (w *env) createDatabase(name, spec string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	o := w.createObject("Database", name, nil, owners...)
	w.patch(o, `{"spec": `+spec+`}`)
	return w.get(o)
}

// databasePolicy returns the beginning of a policy of a kind, without what it decides.
func databasePolicy(kind string) string {
	text := `
kind: ` + kind + `
metadata: {name: databases-NS}
spec:
  resources: [{apiGroups: [NS.example.com], resources: [databases]}]
  mode: Enforce`
	if strings.HasPrefix(kind, "Cluster") {
		text += "\n  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}"
	}
	return text
}

// policyKinds are the kinds that can govern a custom resource.
var policyKinds = []string{"GCPolicy", "ClusterGCPolicy"}

func TestCustomResource_IsKeptByAFixedPolicy(t *testing.T) {
	for _, kind := range policyKinds {
		t.Run(kind, func(t *testing.T) {
			w := newEnv(t)
			w.createDatabaseCRD()
			p := w.applyPolicy(databasePolicy(kind) + "\n  fixed: {collect: {decision: Orphan}}")
			w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
			owner := w.createDatabase("owner", "{}")
			replica, settings := w.createDatabase("replica", "{}", owner), w.createConfigMap("settings", owner)
			w.delete(owner)
			w.expectKept(replica, "KeptByPolicy")
			w.waitForNoOwners(replica)
			w.waitForDeletion(settings) // not governed
		})
	}
}

func TestCustomResource_IsCollected_DependingOnItsSpec(t *testing.T) {
	const retains = `
  rego:
    inline: |
      package gleaner
      collect := {"decision": "Orphan", "reason": "retained"} if input.object.spec.retain == "always"
      else := {"decision": "Wait", "after": "1h"} if input.object.spec.retain == "for now"
      else := {"decision": "Delete"}`
	for _, kind := range policyKinds {
		t.Run(kind, func(t *testing.T) {
			w := newEnv(t)
			group := w.registerDatabases()
			w.createDatabaseCRD()
			w.createReaderFor(group, "databases")
			moduleKind := strings.Replace(kind, "GCPolicy", "PolicyModule", 1)
			account := "{name: reader}"
			if kind == "ClusterGCPolicy" {
				account = "{name: reader, namespace: NS}"
			}
			w.applyPolicy("kind: " + moduleKind + "\nmetadata: {name: retains-NS}\nspec:" + retains)
			p := w.applyPolicy(databasePolicy(kind) + "\n  module: {kind: " + moduleKind + ", name: retains-NS}\n  serviceAccount: " + account)
			w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
			owner := w.createConfigMap("owner")
			kept := w.createDatabase("kept", `{"retain": "always"}`, owner)
			waiting := w.createDatabase("waiting", `{"retain": "for now"}`, owner)
			dropped := w.createDatabase("dropped", `{"retain": "never"}`, owner)
			below := w.createDatabase("below", `{"retain": "never"}`, dropped)
			w.delete(owner)
			w.waitForDeletion(dropped, below)
			if e := w.expectKept(kept, "KeptByPolicy"); e.Evaluations[0].Reason != "retained" {
				t.Errorf("recorded: %+v", e)
			}
			w.waitForNoOwners(kept)
			w.expectKept(waiting, "PolicyWaiting")
			w.patch(waiting, `{"spec": {"retain": "never"}}`)
			w.waitForDeletion(waiting)
		})
	}
}

func TestCustomResource_DeletesItsDependents_ByPolicy(t *testing.T) {
	for _, kind := range policyKinds {
		t.Run(kind, func(t *testing.T) {
			w := newEnv(t)
			w.createDatabaseCRD()
			p := w.applyPolicy(databasePolicy(kind) + "\n  fixed: {propagate: {decision: Wait, after: 1h}}")
			w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
			owner := w.createDatabase("owner", "{}")
			w.waitForHold(owner, true)
			dependents := []*unstructured.Unstructured{w.createConfigMap("settings", owner), w.createDatabase("replica", "{}", owner)}
			w.delete(owner)
			w.expectBlocked(owner, "PolicyWaiting")
			for _, o := range dependents {
				if live := w.get(o); live.GetName() == "" || live.GetDeletionTimestamp() != nil || len(live.GetOwnerReferences()) != 1 {
					t.Errorf("while the policy returns Wait, %s is %v", o.GetName(), live.Object)
				}
			}
			w.patch(p, `{"spec": {"fixed": {"propagate": {"decision": "Orphan", "after": null}}}}`)
			w.waitForDeletion(owner)
			w.waitForNoOwners(dependents[0])
			w.waitForNoOwners(dependents[1])

			w.patch(p, `{"spec": {"fixed": {"propagate": {"decision": "Foreground"}}}}`)
			w.waitForObserved(p)
			owner = w.createDatabase("again", "{}")
			w.waitForHold(owner, true)
			w.expectWaitsForDependent(owner)
		})
	}
}

// expectWaitsForDependent deletes an owner in the background, and checks that it waits for a
// dependent that has a finalizer.
func (w *env) expectWaitsForDependent(owner *unstructured.Unstructured) {
	w.Helper()
	dependent := w.createDatabase("slow", "{}", owner)
	w.patch(dependent, `{"metadata": {"finalizers": ["test.gleaner.dev/slow"], "ownerReferences": [{"apiVersion": "`+owner.GetAPIVersion()+
		`", "kind": "Database", "name": "`+owner.GetName()+`", "uid": "`+string(owner.GetUID())+`", "blockOwnerDeletion": true}]}}`)
	w.delete(owner)
	w.eventually(func() error {
		if w.get(dependent).GetDeletionTimestamp() == nil {
			return errorf("dependent is not being deleted; %s", w.describeDecisions(owner))
		}
		return nil
	})
	if w.get(owner).GetName() == "" {
		w.Errorf("owner did not wait; %s", w.describeDecisions(owner))
	}
	w.patch(dependent, `{"metadata": {"finalizers": null}}`)
	w.waitForDeletion(dependent, owner)
}

func TestCustomResource_WaitsForItsFinalizer(t *testing.T) {
	w := newEnv(t)
	group := w.registerDatabases()
	w.createDatabaseCRD()
	w.createReaderFor(group, "databases")
	w.applyModule("emptied", `
finalize := {"decision": "Done"} if input.object.spec.emptied
else := {"decision": "Wait", "after": "1h", "reason": "it is not empty"}`)
	before := w.createDatabase("before", "{}")
	f := w.applyPolicy(`
kind: Finalizer
metadata: {name: emptied}
spec:
  resources: [{apiGroups: [NS.example.com], resources: [databases]}]
  module: {name: emptied}
  serviceAccount: {name: reader}
  mode: Enforce
  attach: true`)
	after := w.createDatabase("after", "{}")
	dependent := w.createConfigMap("dependent", after)
	for _, o := range []*unstructured.Unstructured{before, after} {
		w.waitForFinalizers(o, w.finalizerName("emptied"))
		w.delete(o)
		w.expectBlocked(o, "FinalizerWaiting")
	}
	w.patch(after, `{"spec": {"emptied": true}}`)
	w.waitForDeletion(after, dependent)
	w.waitForStatus(f, "released", 1)
	w.waitForStatus(f, "pending", 1)
	w.patch(before, `{"spec": {"emptied": true}}`)
	w.waitForDeletion(before)
}

func TestCustomResource_IsGoverned_OnceItsTypeIsDefined(t *testing.T) {
	w := newEnv(t)
	w.registerDatabases()
	p := w.applyPolicy(databasePolicy("GCPolicy") + "\n  fixed: {collect: {decision: Orphan}, propagate: {decision: Orphan}}")
	for range 2 { // the second time, the type has existed before
		w.waitForCondition(p, "Enforcing", metav1.ConditionFalse, "NotServed", "serves no databases."+w.ns+".example.com")
		crd := w.createDatabaseCRD()
		w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
		owner := w.createDatabase("owner", "{}")
		w.waitForHold(owner, true)
		replica, settings := w.createDatabase("replica", "{}", owner), w.createConfigMap("settings", owner)
		w.delete(owner)
		w.waitForDeletion(owner)
		w.waitForNoOwners(replica)
		w.waitForNoOwners(settings)
		lost := w.createDatabase("lost", "{}", settings)
		w.delete(settings)
		w.expectKept(lost, "KeptByPolicy")
		w.waitForHold(replica, true) // the type can still be removed
		w.delete(crd)
		w.waitForDeletion(crd)
	}
}
