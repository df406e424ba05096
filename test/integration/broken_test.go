package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/test/inprocess"
)

// 3.7: a type whose conversion webhook is down can't be listed. All other work
// continues; only an object whose dependents would be orphaned waits, since a
// dependent might be of that type.
func TestScenario48_3_7_BrokenConversion_BlocksOnlyItsType(t *testing.T) {
	w := newEnv(t)
	custom := w.createType(true)
	stored := w.create(objectSpec{name: "stored", kind: custom})
	w.breakConversion(custom)
	devtest.Eventually(t, timeout, func() error {
		if w.collector.Show().Synced() {
			return fmt.Errorf("all types are listed")
		}
		return nil
	})
	// An existing owner of that type can't be read, so its dependent stays. That no object
	// has a given name can be determined without a conversion.
	there := stored.DeepCopy()
	there.SetAPIVersion(custom.resource.Group + "/v2") // requires a conversion
	absent := there.DeepCopy()
	absent.SetName("absent")
	absent.SetUID("5f1c2f7e-1f43-4a43-8d8e-0e1b6c9a0037")
	kept, lost := w.create(objectSpec{name: "kept", owners: ownerRefs(there)}), w.create(objectSpec{name: "lost", owners: ownerRefs(absent)})
	for _, policy := range []metav1.DeletionPropagation{background, foreground} {
		owner := w.create(objectSpec{name: "owner"})
		dependent := w.create(objectSpec{name: "dependent", owners: blockingRefs(owner)})
		w.delete(owner, policy)
		w.waitForDeletion(owner, dependent)
	}
	owner := w.create(objectSpec{name: "owner"})
	w.delete(owner, orphan)
	w.waitForDecision(owner, decide.DependentsUnreadable) // once all types have been searched for its dependents
	if w.get(owner) == nil {
		t.Error("an owner with the orphan finalizer was deleted while a type could not be listed")
	}
	w.waitForDeletion(lost)
	w.expectKept(kept)
	w.repairConversion(custom)
	w.waitForDeletion(owner)
	w.expectKept(kept)
}

// On a control plane of its own, since the type is broken before the collector
// starts.
func TestG11_WorkBegins_WithoutATypeThatIsNotListed(t *testing.T) {
	config := startBareCluster(t).RESTConfig()
	before := newEnvOn(t, config, nil)
	custom := before.createType(true)
	before.create(objectSpec{name: "stored", kind: custom})
	before.breakConversion(custom)
	unlistable := *custom
	unlistable.resource.Version = "v2"
	devtest.Eventually(t, timeout, func() error {
		_, err := before.client(&unlistable, "").List(t.Context(), metav1.ListOptions{})
		if err == nil || apierrors.IsNotFound(err) {
			return fmt.Errorf("the type is not broken yet: %w", err)
		}
		return nil
	})
	o := inprocess.Options(config)
	o.SyncTimeout = 2 * time.Second
	w := newEnvOn(t, config, inprocess.RunForTest(t, o))
	dependent := w.create(objectSpec{name: "dependent", owners: []metav1.OwnerReference{missingOwnerRef()}})
	w.waitForDeletion(dependent)
	if w.collector.Show().Synced() {
		t.Error("all types are listed")
	}
	before.repairConversion(custom)
	devtest.Eventually(t, timeout, func() error {
		if !w.collector.Show().Synced() {
			return fmt.Errorf("not all types are listed")
		}
		return nil
	})
}

// waitForDecision waits until the collector has recorded a decision with a reason for an object.
func (w *env) waitForDecision(o *unstructured.Unstructured, reason decide.Reason) {
	w.Helper()
	devtest.Eventually(w, timeout, func() error {
		entries := w.collector.Records(o.GetUID())
		if !slices.ContainsFunc(entries, func(e record.Entry) bool { return e.Reason == reason }) {
			return fmt.Errorf("%s: no decision with reason %s: %v", o.GetName(), reason, entries)
		}
		return nil
	})
}

// breakConversion makes one version of a custom type the storage version and another
// the preferred one, without a working conversion between them.
func (w *env) breakConversion(k *kind) {
	w.Helper()
	w.updateCRD(k, func(crd *apiextensionsv1.CustomResourceDefinition) {
		second := crd.Spec.Versions[0]
		second.Name, second.Storage = "v2", false
		crd.Spec.Versions = append(crd.Spec.Versions, second)
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{
				ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/convert")},
				ConversionReviewVersions: []string{"v1"},
			},
		}
	})
}

// repairConversion reverts breakConversion.
func (w *env) repairConversion(k *kind) {
	w.Helper()
	w.updateCRD(k, func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	})
}

func (w *env) updateCRD(k *kind, change func(*apiextensionsv1.CustomResourceDefinition)) {
	w.Helper()
	crds := w.types.ApiextensionsV1().CustomResourceDefinitions()
	devtest.Eventually(w, timeout, func() error {
		crd, err := crds.Get(w.Context(), k.resource.GroupResource().String(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(crd)
		_, err = crds.Update(w.Context(), crd, metav1.UpdateOptions{})
		return err
	})
}
