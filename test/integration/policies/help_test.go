package policies

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/operator/keystore"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/statekey"
)

func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// stateKeys returns the operator's keys for state annotations.
func (w *env) stateKeys() statekey.Keys {
	w.Helper()
	var keys statekey.Keys
	w.eventually(func() (err error) { // the leader creates them when it starts
		keys, err = keystore.Read(w.Context(), kubernetes.NewForConfigOrDie(w.config), metav1.NamespaceSystem)
		return err
	})
	return keys
}

// stateOf returns the verified state annotation of an object, or the zero Memo if there is
// none.
func (w *env) stateOf(o *unstructured.Unstructured) objectstate.State {
	w.Helper()
	m, _ := objectstate.Read(w.get(o), time.Now(), w.stateKeys())
	return m
}

// signState returns a state annotation signed as by the operator.
func (w *env) signState(m objectstate.State) string {
	w.Helper()
	text, err := m.Sign(w.stateKeys())
	if err != nil {
		w.Fatal(err)
	}
	return text
}

// quoteJSON returns a text as a JSON string.
func quoteJSON(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// createReader creates the service account reader, which may get and list a resource in the test's
// namespace.
func (w *env) createReader(resource string) (binding *unstructured.Unstructured) {
	w.Helper()
	return w.createReaderFor("", resource)
}

// createReaderFor is like reader, for a resource of an API group.
func (w *env) createReaderFor(group, resource string) (binding *unstructured.Unstructured) {
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

// waitForObserved waits until a policy's current generation is observed.
func (w *env) waitForObserved(p *unstructured.Unstructured) {
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

// createClaim creates a PersistentVolumeClaim with owners.
func (w *env) createClaim(name string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
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
