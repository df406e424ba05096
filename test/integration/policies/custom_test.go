package policies

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resource is that of a kind: one of every cluster's, or one that the test defined.
func (w *world) resource(kind string) schema.GroupVersionResource {
	w.Helper()
	if resource, ok := w.custom[kind]; ok {
		return resource
	}
	resource, ok := resources[kind]
	if !ok {
		w.Fatalf("no resource is known of kind %s", kind)
	}
	return resource
}

// databases names the kind Database, of a group of the test's own, which need not be
// defined yet.
func (w *world) databases() (group string) {
	group = w.ns + ".example.com"
	w.custom = map[string]schema.GroupVersionResource{"Database": {Group: group, Version: "v1", Resource: "databases"}}
	return group
}

// define defines the kind Database, and waits until it is served.
func (w *world) define() (crd *unstructured.Unstructured) {
	w.Helper()
	w.databases()
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

// database creates a Database with owners and a spec.
func (w *world) database(name, spec string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	o := w.object("Database", name, nil, owners...)
	w.patch(o, `{"spec": `+spec+`}`)
	return w.get(o)
}

// governsDatabases is the beginning of a policy of a kind, without what it decides.
func governsDatabases(kind string) string {
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

// kindsOfPolicies are those that can govern a custom resource.
var kindsOfPolicies = []string{"GCPolicy", "ClusterGCPolicy"}

func TestCustomResource_IsKeptByAFixedPolicy(t *testing.T) {
	for _, kind := range kindsOfPolicies {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			w.define()
			p := w.policy(governsDatabases(kind) + "\n  fixed: {collect: {decision: Orphan}}")
			w.says(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
			owner := w.database("owner", "{}")
			replica, settings := w.database("replica", "{}", owner), w.make("settings", owner)
			w.delete(owner)
			w.stays(replica, "KeptByPolicy")
			w.free(replica)
			w.goes(settings) // which the policy does not govern
		})
	}
}

func TestCustomResource_IsCollectedAsAModuleSaysOfItsSpec(t *testing.T) {
	const retains = `
  rego:
    inline: |
      package gleaner
      collect := {"decision": "Orphan", "reason": "retained"} if input.object.spec.retain == "always"
      else := {"decision": "Wait", "after": "1h"} if input.object.spec.retain == "for now"
      else := {"decision": "Delete"}`
	for _, kind := range kindsOfPolicies {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			group := w.databases()
			w.define()
			w.readerOf(group, "databases")
			moduleKind := strings.Replace(kind, "GCPolicy", "PolicyModule", 1)
			account := "{name: reader}"
			if kind == "ClusterGCPolicy" {
				account = "{name: reader, namespace: NS}"
			}
			w.policy("kind: " + moduleKind + "\nmetadata: {name: retains-NS}\nspec:" + retains)
			p := w.policy(governsDatabases(kind) + "\n  module: {kind: " + moduleKind + ", name: retains-NS}\n  serviceAccount: " + account)
			w.says(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
			owner := w.make("owner")
			kept := w.database("kept", `{"retain": "always"}`, owner)
			waiting := w.database("waiting", `{"retain": "for now"}`, owner)
			dropped := w.database("dropped", `{"retain": "never"}`, owner)
			below := w.database("below", `{"retain": "never"}`, dropped)
			w.delete(owner)
			w.goes(dropped, below)
			if e := w.stays(kept, "KeptByPolicy"); e.Asked[0].Reason != "retained" {
				t.Errorf("recorded: %+v", e)
			}
			w.free(kept)
			w.stays(waiting, "WaitsByPolicy")
			w.patch(waiting, `{"spec": {"retain": "never"}}`)
			w.goes(waiting)
		})
	}
}

func TestCustomResource_DeletesItsDependentsAsThePolicyDecides(t *testing.T) {
	for _, kind := range kindsOfPolicies {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			w.define()
			p := w.policy(governsDatabases(kind) + "\n  fixed: {propagate: {decision: Wait, after: 1h}}")
			w.says(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
			owner := w.database("owner", "{}")
			w.held(owner, true)
			dependents := []*unstructured.Unstructured{w.make("settings", owner), w.database("replica", "{}", owner)}
			w.delete(owner)
			w.kept(owner, "WaitsByPolicy")
			for _, o := range dependents {
				if live := w.get(o); live.GetName() == "" || live.GetDeletionTimestamp() != nil || len(live.GetOwnerReferences()) != 1 {
					t.Errorf("while the policy waits, %s is %v", o.GetName(), live.Object)
				}
			}
			w.patch(p, `{"spec": {"fixed": {"propagate": {"decision": "Orphan", "after": null}}}}`)
			w.goes(owner)
			w.free(dependents[0])
			w.free(dependents[1])

			w.patch(p, `{"spec": {"fixed": {"propagate": {"decision": "Foreground"}}}}`)
			w.policyObserved(p)
			owner = w.database("again", "{}")
			w.held(owner, true)
			w.waitsForDependent(owner)
		})
	}
}

// waitsForDependent deletes an owner in the background, and sees that it waits for a
// dependent, which a finalizer keeps for now.
func (w *world) waitsForDependent(owner *unstructured.Unstructured) {
	w.Helper()
	dependent := w.database("slow", "{}", owner)
	w.patch(dependent, `{"metadata": {"finalizers": ["test.gleaner.dev/slow"], "ownerReferences": [{"apiVersion": "`+owner.GetAPIVersion()+
		`", "kind": "Database", "name": "`+owner.GetName()+`", "uid": "`+string(owner.GetUID())+`", "blockOwnerDeletion": true}]}}`)
	w.delete(owner)
	w.eventually(func() error {
		if w.get(dependent).GetDeletionTimestamp() == nil {
			return errorf("the dependent is not being deleted; %s", w.decisions(owner))
		}
		return nil
	})
	if w.get(owner).GetName() == "" {
		w.Errorf("the owner has not waited; %s", w.decisions(owner))
	}
	w.patch(dependent, `{"metadata": {"finalizers": null}}`)
	w.goes(dependent, owner)
}

func TestCustomResource_WaitsForItsFinalizer(t *testing.T) {
	w := newWorld(t)
	group := w.databases()
	w.define()
	w.readerOf(group, "databases")
	w.module("emptied", `
finalize := {"decision": "Done"} if input.object.spec.emptied
else := {"decision": "Wait", "after": "1h", "reason": "it is not empty"}`)
	before := w.database("before", "{}")
	f := w.policy(`
kind: Finalizer
metadata: {name: emptied}
spec:
  resources: [{apiGroups: [NS.example.com], resources: [databases]}]
  module: {name: emptied}
  serviceAccount: {name: reader}
  mode: Enforce
  attach: true`)
	after := w.database("after", "{}")
	dependent := w.make("dependent", after)
	for _, o := range []*unstructured.Unstructured{before, after} {
		w.carries(o, w.entry("emptied"))
		w.delete(o)
		w.kept(o, "FinalizerWaits")
	}
	w.patch(after, `{"spec": {"emptied": true}}`)
	w.goes(after, dependent)
	w.status(f, "released", 1)
	w.status(f, "pending", 1)
	w.patch(before, `{"spec": {"emptied": true}}`)
	w.goes(before)
}

func TestCustomResource_IsGovernedAsSoonAsItsTypeIsDefined(t *testing.T) {
	w := newWorld(t)
	w.databases()
	p := w.policy(governsDatabases("GCPolicy") + "\n  fixed: {collect: {decision: Orphan}, propagate: {decision: Orphan}}")
	for range 2 { // the second time, the type was defined before
		w.says(p, "Enforcing", metav1.ConditionFalse, "NotServed", "serves no databases."+w.ns+".example.com")
		crd := w.define()
		w.says(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
		owner := w.database("owner", "{}")
		w.held(owner, true)
		replica, settings := w.database("replica", "{}", owner), w.make("settings", owner)
		w.delete(owner)
		w.goes(owner)
		w.free(replica)
		w.free(settings)
		lost := w.database("lost", "{}", settings)
		w.delete(settings)
		w.stays(lost, "KeptByPolicy")
		w.held(replica, true) // and yet the type can be removed
		w.delete(crd)
		w.goes(crd)
	}
}
