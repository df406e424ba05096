package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds"
	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/devcluster"
)

// api is the soak test's client of the API server, without the proxy. The API server may be
// unavailable: each call is retried.
type api struct{ client client.Client }

func newAPI(cluster *devcluster.Cluster) (*api, error) {
	config, err := cluster.ConfigFor("soak", "system:masters") // objects that Gleaner's own user creates get no holds
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	return &api{c}, err
}

// createCRDs creates Gleaner's CustomResourceDefinitions.
func (a *api) createCRDs(ctx context.Context) error {
	definitions, err := crds.Definitions()
	if err != nil {
		return err
	}
	for _, d := range definitions {
		if err := a.create(ctx, d); err != nil {
			return err
		}
	}
	return eventually(ctx, func() error {
		for _, list := range []client.ObjectList{&v1alpha1.ClusterGCPolicyList{}, &v1alpha1.ClusterPolicyModuleList{}, &v1alpha1.ClusterFinalizerList{}} {
			if err := a.client.List(ctx, list); err != nil {
				return err
			}
		}
		return nil
	})
}

// create creates an object with a name. If the response is lost, the object is
// read.
func (a *api) create(ctx context.Context, o client.Object) error {
	return eventually(ctx, func() error {
		err := a.client.Create(ctx, o)
		if apierrors.IsAlreadyExists(err) {
			return a.client.Get(ctx, client.ObjectKeyFromObject(o), o)
		}
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			panic(fmt.Sprintf("create %s: %v", o.GetName(), err)) // not retriable
		}
		return err
	})
}

// delete deletes an object, if it exists, with a propagation policy; "" means none.
func (a *api) delete(ctx context.Context, o client.Object, how metav1.DeletionPropagation) error {
	return eventually(ctx, func() error {
		var options []client.DeleteOption
		if how != "" {
			options = append(options, client.PropagationPolicy(how))
		}
		if uid := o.GetUID(); uid != "" {
			options = append(options, client.Preconditions{UID: &uid})
		}
		return client.IgnoreNotFound(a.client.Delete(ctx, o, options...))
	})
}

// removeLabel removes a label from an object.
func (a *api) removeLabel(ctx context.Context, o client.Object, label string) error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, label)
	return eventually(ctx, func() error {
		err := a.client.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch("application/merge-patch+json", []byte(patch)))
		return client.IgnoreNotFound(err)
	})
}

// get reads an object; nil if it does not exist.
func (a *api) get(ctx context.Context, o *unstructured.Unstructured) (found *unstructured.Unstructured, err error) {
	err = eventually(ctx, func() error {
		found = &unstructured.Unstructured{}
		found.SetGroupVersionKind(o.GroupVersionKind())
		err := a.client.Get(ctx, client.ObjectKeyFromObject(o), found)
		if apierrors.IsNotFound(err) || err == nil && found.GetUID() != o.GetUID() {
			found, err = nil, nil
		}
		return err
	})
	return found, err
}

// waitForDeletion waits until an object does not exist any more.
func (a *api) waitForDeletion(ctx context.Context, o client.Object) error {
	return eventually(ctx, func() error {
		err := a.client.Get(ctx, client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%T %s still exists, finalizers %v", o, o.GetName(), o.GetFinalizers())
		}
		return err
	})
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// definition returns the definition of a temporary custom type.
func definition(plural string) *apiextensionsv1.CustomResourceDefinition {
	kind := kindOf(plural).Kind
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + kindOf(plural).Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kindOf(plural).Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: plural + "one", Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)},
				},
			}},
		},
	}
}

func kindOf(plural string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: plural + ".soak.gleaner.dev", Version: "v1", Kind: strings.ToUpper(plural[:1]) + plural[1:]}
}
