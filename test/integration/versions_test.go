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

// 3.5: the version by which owners and dependents were first seen is not served
// any more. The built-in collector asks for them by that version until it is
// restarted.
func Test3_5_AVersionGoesAndItsObjectsAreStillCollected(t *testing.T) {
	for _, policy := range []metav1.DeletionPropagation{background, foreground, orphan} {
		t.Run(string(policy), func(t *testing.T) {
			w := newWorld(t)
			first := w.define(true)
			second := *first
			second.resource.Version = "v2"
			custom := w.make(thing{name: "owner", kind: first})
			core := w.make(thing{name: "core", owners: blocks(custom)})
			// Dependents name their owners by the version that will stay, as
			// they do once whoever made them was brought up to date.
			ref := blocks(custom)
			ref[0].APIVersion = second.resource.GroupVersion().String()
			w.seen(custom, core)
			w.changeType(first, func(crd *apiextensionsv1.CustomResourceDefinition) {
				stays := crd.Spec.Versions[0]
				stays.Name = "v2"
				crd.Spec.Versions[0].Storage = false
				crd.Spec.Versions = append(crd.Spec.Versions, stays)
			})
			w.serves(&second, true)
			dependent := w.make(thing{name: "dependent", kind: &second, owners: ref})
			w.patch(core, map[string]any{"metadata": map[string]any{"ownerReferences": ref}})
			w.seen(dependent)
			w.changeType(first, func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions[0].Served = false })
			w.serves(first, false)
			owner := custom.DeepCopy()
			owner.SetAPIVersion(second.resource.GroupVersion().String())

			w.delete(owner, policy)
			w.goes(owner)
			if policy != orphan {
				w.goes(dependent, core)
				return
			}
			w.ownedBy(dependent)
			w.ownedBy(core)
			w.stays(dependent, core)
		})
	}
}

// serves waits until the API server serves a version of a type, or does not.
func (w *world) serves(k *kind, want bool) {
	w.Helper()
	devtest.Eventually(w, patience, func() error {
		_, err := w.client(k, "").Get(w.Context(), "none", metav1.GetOptions{})
		if err == nil {
			return errors.New("there is an object called none")
		}
		if got := catalog.Denies(err, k.resource.GroupResource(), "none"); got != want {
			return fmt.Errorf("served: %t (%w)", got, err)
		}
		return nil
	})
}
