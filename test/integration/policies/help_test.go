package policies

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/operator/keystore"
	"github.com/gleaner-dev/gleaner/operator/memo"
	"github.com/gleaner-dev/gleaner/operator/statekey"
)

func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// keys are those of the operator.
func (w *world) keys() statekey.Keys {
	w.Helper()
	var keys statekey.Keys
	w.eventually(func() (err error) { // the leader creates them when it begins
		keys, err = keystore.Read(w.Context(), kubernetes.NewForConfigOrDie(w.config), metav1.NamespaceSystem)
		return err
	})
	return keys
}

// remembered is what the operator has written onto an object; the zero Memo if that is
// nothing that counts.
func (w *world) remembered(o *unstructured.Unstructured) memo.Memo {
	w.Helper()
	m, _ := memo.Read(w.get(o), time.Now(), w.keys())
	return m
}

// signed is a memo as the operator would write it.
func (w *world) signed(m memo.Memo) string {
	w.Helper()
	text, err := m.Sign(w.keys())
	if err != nil {
		w.Fatal(err)
	}
	return text
}

// quoted is a text as JSON.
func quoted(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// reader makes a service account of that name that may get and list a resource in the test's
// namespace.
func (w *world) reader(resource string) (binding *unstructured.Unstructured) {
	w.Helper()
	return w.readerOf("", resource)
}

// readerOf does that for a resource of an API group.
func (w *world) readerOf(group, resource string) (binding *unstructured.Unstructured) {
	w.Helper()
	const name = "reader"
	w.apply(fmt.Sprintf(`{kind: ServiceAccount, metadata: {name: %s}}`, name))
	w.apply(fmt.Sprintf(`
kind: Role
metadata: {name: %s}
rules: [{apiGroups: ["%s"], resources: [%s], verbs: [get, list]}]`, name, group, resource))
	return w.apply(fmt.Sprintf(`
kind: RoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[1]s}
subjects: [{kind: ServiceAccount, name: %[1]s, namespace: NS}]`, name))
}

// policyObserved waits until a policy's last change is in force.
func (w *world) policyObserved(p *unstructured.Unstructured) {
	w.Helper()
	w.eventually(func() error {
		live := w.get(p)
		observed, _, _ := unstructured.NestedInt64(live.Object, "status", "observedGeneration")
		if observed != live.GetGeneration() {
			return errorf("%s: generation %d, observed %d", p.GetName(), live.GetGeneration(), observed)
		}
		return nil
	})
}

// claim makes a PersistentVolumeClaim with owners.
func (w *world) claim(name string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	o := w.apply(fmt.Sprintf(`
kind: PersistentVolumeClaim
metadata: {name: %s}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`, name))
	refs := []map[string]any{}
	for _, owner := range owners {
		refs = append(refs, map[string]any{"apiVersion": owner.GetAPIVersion(), "kind": owner.GetKind(), "name": owner.GetName(), "uid": owner.GetUID()})
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": refs}})
	if err != nil {
		w.Fatal(err)
	}
	w.patch(o, string(data))
	return w.get(o)
}
