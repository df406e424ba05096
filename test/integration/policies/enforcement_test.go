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
	"github.com/gleaner-dev/gleaner/test/inprocess"
)

// enforcementFlags enables the admission plugin that requires permissions for owner references:
// delete on the object to change them, and update on the owner's finalizers to block it.
const enforcementFlags = "OwnerReferencesPermissionEnforcement"

const operatorNamespace = "gleaner-system"

func TestEnforcement_OfOwnerReferences(t *testing.T) {
	o := newEnforcedEnv(t)
	claims := map[string]func(*env){
		"the operator deletes and orphans":                  (*env).deletesAndOrphans,
		"the operator unblocks a cycle":                     (*env).unblocksACycle,
		"the operator enforces policies and finalizers":     (*env).enforcesPolicies,
		"a tenant cannot block an owner without permission": func(w *env) { w.keepsTenantsFromBlocking(o.cluster) },
	}
	if slices.Contains(controllers, "-garbage-collector-controller") { // the built-in collector drops both
		claims["the operator drops one of two references with one UID"] = (*env).dropsOneOfTwo
	}
	for claim, holds := range claims {
		t.Run(claim, func(t *testing.T) {
			w := newEnvOn(t, o.cluster.RESTConfig(), o.collector)
			holds(w)
			w.expectNothingForbidden()
		})
	}
}

// newEnforcedEnv starts a control plane with that plugin, on which the operator has only the
// permissions of its manifests.
func newEnforcedEnv(t *testing.T) *dedicatedEnv {
	t.Helper()
	t.Parallel()
	cluster := devtest.Start(t, devcluster.Options{Controllers: controllers, AdmissionPlugins: []string{enforcementFlags}})
	if err := inprocess.CreateCRDs(t, cluster.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	o := &dedicatedEnv{env: newEnvOn(t, cluster.RESTConfig(), nil), cluster: cluster}
	o.apply(`{kind: Namespace, metadata: {name: ` + operatorNamespace + `}}`)
	for _, file := range []string{"rbac/operator.yaml", "webhook/cluster_rights.yaml", "webhook/certificate_rights.yaml"} {
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
	if o.collector, o.stop, err = runCollector(options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.stopOperator)
	return o
}

// blocking returns blocking references to owners.
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

// createWithReferences creates an object of a kind with references.
func (w *env) createWithReferences(kind, name string, refs ...metav1.OwnerReference) *unstructured.Unstructured {
	w.Helper()
	o := w.createObject(kind, name, nil)
	w.patch(o, `{"metadata": {"ownerReferences": `+asJSON(refs)+`}}`)
	return w.get(o)
}

// expectNothingForbidden checks that no request of the operator was recorded as forbidden.
func (w *env) expectNothingForbidden() {
	w.Helper()
	for _, e := range w.collector.Records("") {
		if strings.Contains(strings.ToLower(e.Error), "forbidden") {
			w.Fatalf("%s: %s", e, e.Error)
		}
	}
}

func (w *env) deletesAndOrphans() {
	w.createDatabaseCRD()
	for _, kind := range []string{"ConfigMap", "Database"} {
		for _, policy := range []metav1.DeletionPropagation{
			metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
		} {
			name := strings.ToLower(kind + "-" + string(policy))
			owner, stays := w.createObject(kind, name, nil), w.createObject(kind, name+"-stays", nil)
			dependent := w.createWithReferences(kind, name+"-dependent", blocking(owner)...)
			shared := w.createWithReferences(kind, name+"-shared", blocking(owner, stays)...)
			w.deleteWithPolicy(owner, policy)
			w.waitForDeletion(owner)
			if policy == metav1.DeletePropagationOrphan {
				w.waitForNoOwners(dependent)
			} else {
				w.waitForDeletion(dependent)
			}
			w.waitForOwners(shared, stays)
		}
	}
}

// waitForOwners waits until an object has exactly these owners.
func (w *env) waitForOwners(o *unstructured.Unstructured, owners ...*unstructured.Unstructured) {
	w.Helper()
	w.eventually(func() error {
		refs := w.get(o).GetOwnerReferences()
		same := len(refs) == len(owners)
		for i := 0; same && i < len(refs); i++ {
			same = refs[i].UID == owners[i].GetUID() && refs[i].Name == owners[i].GetName()
		}
		if !same {
			return errorf("%s has references %v; %s", o.GetName(), refs, w.describeDecisions(o))
		}
		return nil
	})
}

// The plugin compares references by UID and uses the last of each: where two have the
// same UID, the first one seems to become blocking.
func (w *env) dropsOneOfTwo() {
	owner := w.createConfigMap("owner")
	refs := append(blocking(owner), blocking(owner)...)
	refs[1].Name, refs[1].BlockOwnerDeletion = "another", nil
	w.waitForOwners(w.createWithReferences("ConfigMap", "dependent", refs...), owner)
}

func (w *env) unblocksACycle() {
	first := w.createConfigMap("first")
	second := w.createWithReferences("ConfigMap", "second", blocking(first)...)
	w.patch(first, `{"metadata": {"ownerReferences": `+asJSON(blocking(second))+`}}`)
	w.deleteWithPolicy(first, metav1.DeletePropagationForeground)
	w.waitForDeletion(first, second)
}

func (w *env) enforcesPolicies() {
	w.applyPolicy(`
kind: GCPolicy
metadata: {name: keeps}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	p := w.applyPolicy(governingPolicy + `{propagate: {decision: Orphan}}`)
	w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	plain := w.createConfigMap("plain")
	kept := w.createWithReferences("ConfigMap", "kept", blocking(plain)...)
	w.delete(plain)
	w.waitForNoOwners(kept)

	owner := w.createHeldSecret()
	dependent := w.createWithReferences("ConfigMap", "dependent", blocking(owner)...)
	w.delete(owner)
	w.waitForDeletion(owner)
	w.waitForNoOwners(dependent)

	w.patch(p, `{"spec": {"fixed": {"propagate": {"decision": "Foreground"}}}}`)
	w.waitForObserved(p)
	first := w.createHeldSecret()
	below := w.createWithReferences("ServiceAccount", "below", blocking(first)...)
	w.delete(first)
	w.waitForDeletion(below, first)

	w.applyFinalizer("done", doneModule, "attach: true")
	w.waitForFinalizers(kept, w.finalizerName("done"))
	w.delete(kept)
	w.waitForDeletion(kept)
}

func (w *env) keepsTenantsFromBlocking(cluster *devcluster.Cluster) {
	owner := w.createConfigMap("owner")
	as, err := cluster.ConfigFor("tenant")
	if err != nil {
		w.Fatal(err)
	}
	tenant := dynamic.NewForConfigOrDie(as).Resource(resources["ConfigMap"]).Namespace(w.ns)
	w.grant("tenant", `{apiGroups: [""], resources: [configmaps], verbs: [create, get, update]}`)
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
		w.Errorf("tenant blocked an owner: %v", err)
	}
	plain := w.createConfigMap("plain", owner)
	plain.SetOwnerReferences(nil)
	if _, err := tenant.Update(w.Context(), plain, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "can't delete") {
		w.Errorf("tenant removed a reference without permission to delete: %v", err)
	}
	w.grant("tenant", `{apiGroups: [""], resources: [configmaps/finalizers], verbs: [update]}`, `{apiGroups: [""], resources: [configmaps], verbs: [create]}`)
	w.eventually(func() error { return try("blocks") })
}

// grant grants a user permissions in the test's namespace.
func (w *env) grant(user string, rules ...string) {
	w.Helper()
	w.apply(`{kind: Role, metadata: {name: ` + user + `}, rules: [` + strings.Join(rules, ", ") + `]}`)
	w.apply(`
kind: RoleBinding
metadata: {name: ` + user + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: ` + user + `}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + user + `}]`)
}
