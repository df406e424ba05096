package policies

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/inside"
)

// enforcing is the admission plugin that asks for rights to owner references: to delete
// the object for changing them, and to update the owner's finalizers for blocking it.
const enforcing = "OwnerReferencesPermissionEnforcement"

const operatorNamespace = "gleaner-system"

func TestEnforcement_OfOwnerReferences(t *testing.T) {
	o := newEnforced(t)
	claims := map[string]func(*world){
		"the operator deletes and orphans":             (*world).deletesAndOrphans,
		"it unblocks a circle":                         (*world).unblocksACircle,
		"it does what policies and finalizers say":     (*world).enforcesPolicies,
		"a tenant does not block what it may not hold": func(w *world) { w.keepsTenantsFromBlocking(o.cluster) },
	}
	if slices.Contains(controllers, "-garbage-collector-controller") { // which drops both
		claims["it drops one of two references of one UID"] = (*world).dropsOneOfTwo
	}
	for claim, holds := range claims {
		t.Run(claim, func(t *testing.T) {
			w := worldOn(t, o.cluster.RESTConfig(), o.collector)
			holds(w)
			w.nothingForbidden()
		})
	}
}

// newEnforced is a control plane with that plugin, on which the operator has the rights of
// its manifests and no others.
func newEnforced(t *testing.T) *operation {
	t.Helper()
	t.Parallel()
	cluster := devtest.Start(t, devcluster.Options{Controllers: controllers, AdmissionPlugins: []string{enforcing}})
	if err := inside.Define(t, cluster.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	o := &operation{world: worldOn(t, cluster.RESTConfig(), nil), cluster: cluster}
	o.apply(`{kind: Namespace, metadata: {name: ` + operatorNamespace + `}}`)
	for _, file := range []string{"rbac/operator.yaml", "webhook/rights.yaml"} {
		if _, err := cluster.Kubectl(t.Context(), "apply", "-f", "../../../config/"+file); err != nil {
			t.Fatal(err)
		}
	}
	const accounts = "system:serviceaccounts"
	var err error
	o.config, err = cluster.ConfigFor("system:serviceaccount:"+operatorNamespace+":gleaner", accounts, accounts+":"+operatorNamespace)
	if err != nil {
		t.Fatal(err)
	}
	options := o.options()
	options.Namespace = operatorNamespace
	if o.collector, o.stop, err = run(options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.end)
	return o
}

// blocking are references to owners that wait for the object.
func blocking(owners ...*unstructured.Unstructured) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for _, owner := range owners {
		blocks := true
		refs = append(refs, metav1.OwnerReference{
			APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(), BlockOwnerDeletion: &blocks,
		})
	}
	return refs
}

func asJSON(refs []metav1.OwnerReference) string {
	data, err := json.Marshal(refs)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// owned creates an object of a kind with references.
func (w *world) owned(kind, name string, refs ...metav1.OwnerReference) *unstructured.Unstructured {
	w.Helper()
	o := w.object(kind, name, nil)
	w.patch(o, `{"metadata": {"ownerReferences": `+asJSON(refs)+`}}`)
	return w.get(o)
}

// nothingForbidden makes sure that the operator was forbidden nothing, as far as it says.
func (w *world) nothingForbidden() {
	w.Helper()
	for _, e := range w.collector.Records("") {
		if strings.Contains(strings.ToLower(e.Error), "forbidden") {
			w.Fatalf("%s: %s", e, e.Error)
		}
	}
}

func (w *world) deletesAndOrphans() {
	w.define()
	for _, kind := range []string{"ConfigMap", "Database"} {
		for _, policy := range []metav1.DeletionPropagation{
			metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
		} {
			name := strings.ToLower(kind + "-" + string(policy))
			owner, stays := w.object(kind, name, nil), w.object(kind, name+"-stays", nil)
			dependent := w.owned(kind, name+"-dependent", blocking(owner)...)
			shared := w.owned(kind, name+"-shared", blocking(owner, stays)...)
			w.deleteBy(owner, policy)
			w.goes(owner)
			if policy == metav1.DeletePropagationOrphan {
				w.free(dependent)
			} else {
				w.goes(dependent)
			}
			w.owners(shared, stays)
		}
	}
}

// owners waits until an object has just these owners.
func (w *world) owners(o *unstructured.Unstructured, owners ...*unstructured.Unstructured) {
	w.Helper()
	w.eventually(func() error {
		refs := w.get(o).GetOwnerReferences()
		same := len(refs) == len(owners)
		for i := 0; same && i < len(refs); i++ {
			same = refs[i].UID == owners[i].GetUID() && refs[i].Name == owners[i].GetName()
		}
		if !same {
			return errorf("%s has references %v; %s", o.GetName(), refs, w.decisions(o))
		}
		return nil
	})
}

// The plugin compares references by UID, of which it takes the last: where two have the
// same, it finds the first one blocking that was so before.
func (w *world) dropsOneOfTwo() {
	owner := w.make("owner")
	refs := append(blocking(owner), blocking(owner)...)
	refs[1].Name, refs[1].BlockOwnerDeletion = "another", nil
	w.owners(w.owned("ConfigMap", "dependent", refs...), owner)
}

func (w *world) unblocksACircle() {
	first := w.make("first")
	second := w.owned("ConfigMap", "second", blocking(first)...)
	w.patch(first, `{"metadata": {"ownerReferences": `+asJSON(blocking(second))+`}}`)
	w.deleteBy(first, metav1.DeletePropagationForeground)
	w.goes(first, second)
}

func (w *world) enforcesPolicies() {
	w.policy(`
kind: GCPolicy
metadata: {name: keeps}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	p := w.policy(governing + `{propagate: {decision: Orphan}}`)
	w.says(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	plain := w.make("plain")
	kept := w.owned("ConfigMap", "kept", blocking(plain)...)
	w.delete(plain)
	w.free(kept)

	owner := w.secret()
	dependent := w.owned("ConfigMap", "dependent", blocking(owner)...)
	w.delete(owner)
	w.goes(owner)
	w.free(dependent)

	w.patch(p, `{"spec": {"fixed": {"propagate": {"decision": "Foreground"}}}}`)
	w.policyObserved(p)
	first := w.secret()
	below := w.owned("ServiceAccount", "below", blocking(first)...)
	w.delete(first)
	w.goes(below, first)

	w.finalizer("done", done, "attach: true")
	w.carries(kept, w.entry("done"))
	w.delete(kept)
	w.goes(kept)
}

func (w *world) keepsTenantsFromBlocking(cluster *devcluster.Cluster) {
	owner := w.make("owner")
	as, err := cluster.ConfigFor("tenant")
	if err != nil {
		w.Fatal(err)
	}
	tenant := dynamic.NewForConfigOrDie(as).Resource(resources["ConfigMap"]).Namespace(w.ns)
	w.may("tenant", `{apiGroups: [""], resources: [configmaps], verbs: [create, get, update]}`)
	try := func(name string) error {
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
		object.SetName(name)
		object.SetOwnerReferences(blocking(owner))
		_, err := tenant.Create(w.Context(), object, metav1.CreateOptions{})
		return err
	}
	w.eventually(func() error {
		if _, err := tenant.Get(w.Context(), "owner", metav1.GetOptions{}); err != nil {
			return err
		}
		return nil
	})
	if err := try("blocks"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "can't set finalizers on") {
		w.Errorf("a tenant blocks an owner: %v", err)
	}
	plain := w.make("plain", owner)
	plain.SetOwnerReferences(nil)
	if _, err := tenant.Update(w.Context(), plain, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "can't delete") {
		w.Errorf("a tenant takes a reference off what it may not delete: %v", err)
	}
	w.may("tenant", `{apiGroups: [""], resources: [configmaps/finalizers], verbs: [update]}`, `{apiGroups: [""], resources: [configmaps], verbs: [create]}`)
	w.eventually(func() error { return try("blocks") })
}

// may gives a user rights in the test's namespace, and no others.
func (w *world) may(user string, rules ...string) {
	w.Helper()
	w.apply(`{kind: Role, metadata: {name: ` + user + `}, rules: [` + strings.Join(rules, ", ") + `]}`)
	w.apply(`
kind: RoleBinding
metadata: {name: ` + user + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: ` + user + `}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + user + `}]`)
}
