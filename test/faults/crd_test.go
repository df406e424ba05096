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

func (w *world) definitions() apiextensions.Interface {
	return apiextensions.NewForConfigOrDie(w.admin)
}

// newType names a type that nobody else has.
func newType() schema.GroupResource {
	plural := "things" + rand.String(6)
	return schema.GroupResource{Group: plural + ".gleaner.dev", Resource: plural}
}

// define makes a custom type, of which objects can be made when it returns,
// and has the witness watch it.
func (w *world) define(resource schema.GroupResource) *kind {
	w.Helper()
	w.create(resource)
	k := kindOf(resource)
	w.served(k)
	w.follow(k)
	return k
}

// served waits until objects of a type can be made.
func (w *world) served(k *kind) {
	w.Helper()
	eventually(w, func() error {
		_, err := w.witness.client(k).Get(w.Context(), "none", metav1.GetOptions{})
		if !catalog.Denies(err, k.resource.GroupResource(), "none") {
			return fmt.Errorf("the API server does not serve it yet: %w", err)
		}
		return nil
	})
}

func kindOf(r schema.GroupResource) *kind {
	return &kind{resource: r.WithVersion("v1"), kind: strings.ToUpper(r.Resource[:1]) + r.Resource[1:], namespaced: true}
}

// create begins to define a custom type.
func (w *world) create(resource schema.GroupResource) {
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
	crds := w.definitions().ApiextensionsV1().CustomResourceDefinitions()
	if _, err := crds.Create(w.Context(), crd, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.defined = append(w.defined, crd.Name)
}

// undefine takes a custom type away, with its objects, and returns when it is
// not served any more.
func (w *world) undefine(k *kind) {
	w.Helper()
	w.remove(k)
	w.removed(k)
}

// remove begins to take a custom type away.
func (w *world) remove(k *kind) {
	w.Helper()
	w.witness.loses(k)
	crds := w.definitions().ApiextensionsV1().CustomResourceDefinitions()
	name := k.resource.GroupResource().String()
	if err := crds.Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// removed waits until a custom type is gone.
func (w *world) removed(k *kind) {
	w.Helper()
	crds := w.definitions().ApiextensionsV1().CustomResourceDefinitions()
	name := k.resource.GroupResource().String()
	eventually(w, func() error {
		if _, err := crds.Get(w.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s is still there: %w", name, err)
		}
		return nil
	})
}

// alter changes a custom type's definition.
func (w *world) alter(k *kind, change func(*apiextensionsv1.CustomResourceDefinition)) {
	w.Helper()
	crds := w.definitions().ApiextensionsV1().CustomResourceDefinitions()
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

// breakConversion has a custom type stored by one version and preferred by
// another, to which nobody can convert it.
func (w *world) breakConversion(k *kind) {
	w.Helper()
	w.alter(k, func(crd *apiextensionsv1.CustomResourceDefinition) {
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

// mendConversion undoes breakConversion.
func (w *world) mendConversion(k *kind) {
	w.Helper()
	w.alter(k, func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	})
}
