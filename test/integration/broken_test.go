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
)

// 3.7: a type whose conversion webhook is down can't be listed. Everything else
// goes on; only what an owner would orphan is held, since it might be of that
// type.
func TestScenario48_3_7_ABrokenConversionWebhookHoldsOnlyWhatNeedsTheType(t *testing.T) {
	w := newWorld(t)
	custom := w.define(true)
	stored := w.make(thing{name: "stored", kind: custom})
	w.breakConversion(custom)
	devtest.Eventually(t, patience, func() error {
		if w.collector.Show().Synced() {
			return fmt.Errorf("all types are listed")
		}
		return nil
	})
	// An owner of that type that is there can't be read, and so its dependent stays. That there
	// is none of a name can be told without converting anything.
	there := stored.DeepCopy()
	there.SetAPIVersion(custom.resource.Group + "/v2") // which takes a conversion
	absent := there.DeepCopy()
	absent.SetName("absent")
	absent.SetUID("5f1c2f7e-1f43-4a43-8d8e-0e1b6c9a0037")
	kept, lost := w.make(thing{name: "kept", owners: owns(there)}), w.make(thing{name: "lost", owners: owns(absent)})
	for _, policy := range []metav1.DeletionPropagation{background, foreground} {
		owner := w.make(thing{name: "owner"})
		dependent := w.make(thing{name: "dependent", owners: blocks(owner)})
		w.delete(owner, policy)
		w.goes(owner, dependent)
	}
	owner := w.make(thing{name: "owner"})
	w.delete(owner, orphan)
	w.decides(owner, decide.DependentsUnreadable) // once all types have been asked for its dependents
	if w.get(owner) == nil {
		t.Error("an orphaning owner went while a type could not be listed")
	}
	w.goes(lost)
	w.stays(kept)
	w.mendConversion(custom)
	w.goes(owner)
	w.stays(kept)
}

// On a control plane of its own, since the type is broken before the collector
// starts.
func TestG11_WorkBeginsAlthoughATypeWasNeverListed(t *testing.T) {
	config := bare(t).RESTConfig()
	before := worldOn(t, config, nil)
	custom := before.define(true)
	before.make(thing{name: "stored", kind: custom})
	before.breakConversion(custom)
	unlistable := *custom
	unlistable.resource.Version = "v2"
	devtest.Eventually(t, patience, func() error {
		_, err := before.client(&unlistable, "").List(t.Context(), metav1.ListOptions{})
		if err == nil || apierrors.IsNotFound(err) {
			return fmt.Errorf("the type is not broken yet: %w", err)
		}
		return nil
	})
	o := options(config)
	o.SyncTimeout = 2 * time.Second
	w := worldOn(t, config, run(t, o))
	dependent := w.make(thing{name: "dependent", owners: []metav1.OwnerReference{lost()}})
	w.goes(dependent)
	if w.collector.Show().Synced() {
		t.Error("all types are listed")
	}
	before.mendConversion(custom)
	devtest.Eventually(t, patience, func() error {
		if !w.collector.Show().Synced() {
			return fmt.Errorf("not all types are listed")
		}
		return nil
	})
}

// decides waits until the collector has decided on an object for some reason.
func (w *world) decides(o *unstructured.Unstructured, reason decide.Reason) {
	w.Helper()
	devtest.Eventually(w, patience, func() error {
		entries := w.collector.Records(o.GetUID())
		if !slices.ContainsFunc(entries, func(e record.Entry) bool { return e.Reason == reason }) {
			return fmt.Errorf("%s was not decided on as %s: %v", o.GetName(), reason, entries)
		}
		return nil
	})
}

// breakConversion has a custom type stored by one version and preferred by
// another, to which nobody can convert it.
func (w *world) breakConversion(k *kind) {
	w.Helper()
	w.changeType(k, func(crd *apiextensionsv1.CustomResourceDefinition) {
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

// mendConversion undoes breakConversion.
func (w *world) mendConversion(k *kind) {
	w.Helper()
	w.changeType(k, func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	})
}

func (w *world) changeType(k *kind, change func(*apiextensionsv1.CustomResourceDefinition)) {
	w.Helper()
	crds := w.types.ApiextensionsV1().CustomResourceDefinitions()
	devtest.Eventually(w, patience, func() error {
		crd, err := crds.Get(w.Context(), k.resource.GroupResource().String(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(crd)
		_, err = crds.Update(w.Context(), crd, metav1.UpdateOptions{})
		return err
	})
}
