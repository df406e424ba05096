package integration

import (
	"errors"
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/catalog"
)

// 3.5: the version by which owners and dependents were first seen is no longer served.
// The built-in collector requests that version until it is restarted.
func Test3_5_RemovedVersion_ObjectsAreStillCollected(t *testing.T) {
	for _, policy := range []metav1.DeletionPropagation{background, foreground, orphan} {
		t.Run(string(policy), func(t *testing.T) {
			w := newEnv(t)
			first := w.createType(true)
			second := *first
			second.resource.Version = "v2"
			custom := w.create(objectSpec{name: "owner", kind: first})
			core := w.create(objectSpec{name: "core", owners: blockingRefs(custom)})
			// Dependents refer to their owners by the remaining version, as
			// an updated controller would.
			ref := blockingRefs(custom)
			ref[0].APIVersion = second.resource.GroupVersion().String()
			w.waitForGraph(custom, core)
			w.updateCRD(first, func(crd *apiextensionsv1.CustomResourceDefinition) {
				stays := crd.Spec.Versions[0]
				stays.Name = "v2"
				crd.Spec.Versions[0].Storage = false
				crd.Spec.Versions = append(crd.Spec.Versions, stays)
			})
			w.waitForServed(&second, true)
			dependent := w.create(objectSpec{name: "dependent", kind: &second, owners: ref})
			w.patch(core, map[string]any{"metadata": map[string]any{"ownerReferences": ref}})
			w.waitForGraph(dependent)
			w.updateCRD(first, func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions[0].Served = false })
			w.waitForServed(first, false)
			owner := custom.DeepCopy()
			owner.SetAPIVersion(second.resource.GroupVersion().String())

			w.delete(owner, policy)
			w.waitForDeletion(owner)
			if policy != orphan {
				w.waitForDeletion(dependent, core)
				return
			}
			w.waitForOwners(dependent)
			w.waitForOwners(core)
			w.expectKept(dependent, core)
		})
	}
}

// waitForServed waits until the API server serves, or no longer serves, a version of a type.
func (w *env) waitForServed(k *kind, want bool) {
	w.Helper()
	devtest.Eventually(w, timeout, func() error {
		_, err := w.client(k, "").Get(w.Context(), "none", metav1.GetOptions{})
		if err == nil {
			return errors.New("an object with the name none exists")
		}
		if got := catalog.ConfirmsNotFound(err, k.resource.GroupResource(), "none"); got != want {
			return fmt.Errorf("served: %t (%w)", got, err)
		}
		return nil
	})
}
