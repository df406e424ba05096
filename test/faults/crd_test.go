package faults

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/operator/catalog"
)

func (w *env) crdClient() apiextensions.Interface {
	return apiextensions.NewForConfigOrDie(w.admin)
}

// newType returns a type with a unique name.
func newType() schema.GroupResource {
	plural := "things" + rand.String(6)
	return schema.GroupResource{Group: plural + ".gleaner.dev", Resource: plural}
}

// createType creates a custom type, waits until objects can be created,
// and makes the auditor watch it.
func (w *env) createType(resource schema.GroupResource) *kind {
	w.Helper()
	w.createCRD(resource)
	k := kindOf(resource)
	w.waitForServed(k)
	w.watchType(k)
	return k
}

// waitForServed waits until objects of a type can be created.
func (w *env) waitForServed(k *kind) {
	w.Helper()
	eventually(w, func() error {
		_, err := w.auditor.client(k).Get(w.Context(), "none", metav1.GetOptions{})
		if !catalog.ConfirmsNotFound(err, k.resource.GroupResource(), "none") {
			return fmt.Errorf("type is not served yet: %w", err)
		}
		return nil
	})
}

func kindOf(r schema.GroupResource) *kind {
	return &kind{resource: r.WithVersion("v1"), kind: strings.ToUpper(r.Resource[:1]) + r.Resource[1:], namespaced: true}
}

// createCRD creates the definition of a custom type.
func (w *env) createCRD(resource schema.GroupResource) {
	w.Helper()
	k := kindOf(resource)
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: resource.String()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: resource.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: resource.Resource, Singular: resource.Resource + "one", Kind: k.kind, ListKind: k.kind + "List",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)},
				},
			}},
		},
	}
	crds := w.crdClient().ApiextensionsV1().CustomResourceDefinitions()
	if _, err := crds.Create(w.Context(), crd, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.definedTypes = append(w.definedTypes, crd.Name)
}

// removeType removes a custom type with its objects, and waits until it is
// no longer served.
func (w *env) removeType(k *kind) {
	w.Helper()
	w.deleteCRD(k)
	w.waitForCRDDeletion(k)
}

// deleteCRD deletes the definition of a custom type.
func (w *env) deleteCRD(k *kind) {
	w.Helper()
	w.auditor.allowTypeRemoval(k)
	crds := w.crdClient().ApiextensionsV1().CustomResourceDefinitions()
	name := k.resource.GroupResource().String()
	if err := crds.Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// waitForCRDDeletion waits until the definition of a custom type is gone.
func (w *env) waitForCRDDeletion(k *kind) {
	w.Helper()
	crds := w.crdClient().ApiextensionsV1().CustomResourceDefinitions()
	name := k.resource.GroupResource().String()
	eventually(w, func() error {
		if _, err := crds.Get(w.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s still exists: %w", name, err)
		}
		return nil
	})
}

// updateCRD updates a custom type's definition.
func (w *env) updateCRD(k *kind, change func(*apiextensionsv1.CustomResourceDefinition)) {
	w.Helper()
	crds := w.crdClient().ApiextensionsV1().CustomResourceDefinitions()
	eventually(w, func() error {
		crd, err := crds.Get(w.Context(), k.resource.GroupResource().String(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(crd)
		_, err = crds.Update(w.Context(), crd, metav1.UpdateOptions{})
		return err
	})
}

// breakConversion makes one version of a custom type the storage version and another
// the preferred one, without a working conversion between them.
func (w *env) breakConversion(k *kind) {
	w.Helper()
	w.updateCRD(k, func(crd *apiextensionsv1.CustomResourceDefinition) {
		second := crd.Spec.Versions[0]
		second.Name, second.Storage = "v2", false
		crd.Spec.Versions = append(crd.Spec.Versions[:1:1], second)
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
