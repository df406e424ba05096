package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/loop"
)

const patience = time.Minute

// world is one test's namespace and its clients.
type world struct {
	*testing.T
	collector *loop.Loop
	config    *rest.Config
	kube      kubernetes.Interface
	objects   dynamic.Interface
	types     apiextensions.Interface
	ns        string
}

// newWorld gives a test a namespace of its own, with the shared collector
// running.
func newWorld(t *testing.T) *world {
	t.Helper()
	collector := gleaner(t)
	return worldOn(t, devtest.Shared(t).RESTConfig(), collector)
}

// worldOn is newWorld on any control plane, with any collector.
func worldOn(t *testing.T, config *rest.Config, collector *loop.Loop) *world {
	t.Helper()
	return &world{
		T: t, collector: collector, config: config,
		kube:    kubernetes.NewForConfigOrDie(config),
		objects: dynamic.NewForConfigOrDie(config),
		types:   apiextensions.NewForConfigOrDie(config),
		ns:      devtest.Namespace(t, config),
	}
}

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	pods       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// thing is an object to be made: a ConfigMap in the test's namespace unless it
// says otherwise.
type thing struct {
	name       string
	owners     []metav1.OwnerReference
	finalizers []string
	namespace  string // of the object, if not the test's
	kind       *kind
}

// kind is a type of object; nil is the ConfigMap.
type kind struct {
	resource   schema.GroupVersionResource
	kind       string
	namespaced bool
	spec       map[string]any
}

var configMap = &kind{resource: configMaps, kind: "ConfigMap", namespaced: true}

// clusterRole is a cluster-scoped type that is always there.
var clusterRole = &kind{
	resource: schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	kind:     "ClusterRole",
}

func (w *world) client(k *kind, namespace string) dynamic.ResourceInterface {
	if k == nil {
		k = configMap
	}
	if !k.namespaced {
		return w.objects.Resource(k.resource)
	}
	if namespace == "" {
		namespace = w.ns
	}
	return w.objects.Resource(k.resource).Namespace(namespace)
}

// make creates an object.
func (w *world) make(th thing) *unstructured.Unstructured {
	w.Helper()
	k := th.kind
	if k == nil {
		k = configMap
	}
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(k.resource.GroupVersion().WithKind(k.kind))
	o.SetName(th.name)
	o.SetOwnerReferences(th.owners)
	o.SetFinalizers(th.finalizers)
	if k.spec != nil {
		o.Object["spec"] = k.spec
	}
	made, err := w.client(k, th.namespace).Create(w.Context(), o, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { w.free(k, made) })
	return made
}

// free lets an object go whatever holds it, when a test is over.
func (w *world) free(k *kind, o *unstructured.Unstructured) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), patience)
	defer cancel()
	client := w.client(k, o.GetNamespace())
	_, _ = client.Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null,"ownerReferences":null}}`), metav1.PatchOptions{})
	if !k.namespaced {
		_ = client.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
	}
}

// owns returns references to owners, none of which blocks.
func owns(owners ...*unstructured.Unstructured) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for _, o := range owners {
		refs = append(refs, metav1.OwnerReference{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID()})
	}
	return refs
}

// blocks returns references to owners that block their deletion.
func blocks(owners ...*unstructured.Unstructured) []metav1.OwnerReference {
	refs := owns(owners...)
	for i := range refs {
		refs[i].BlockOwnerDeletion = ptr.To(true)
	}
	return refs
}

// lost returns a reference to an owner that never existed.
func lost() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "never-" + rand.String(5), UID: types.UID("never-" + rand.String(20))}
}

const (
	background = metav1.DeletePropagationBackground
	foreground = metav1.DeletePropagationForeground
	orphan     = metav1.DeletePropagationOrphan
)

// kindOf finds an object's kind back.
func kindOf(o *unstructured.Unstructured) *kind {
	gvk := o.GroupVersionKind()
	for _, k := range []*kind{configMap, pod, replicationController, clusterRole, hpa} {
		if k.kind == gvk.Kind && k.resource.Group == gvk.Group {
			return k
		}
	}
	return &kind{
		resource:   gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind)), // as define names them
		kind:       gvk.Kind,
		namespaced: o.GetNamespace() != "",
	}
}

// delete deletes an object with a propagation policy.
func (w *world) delete(o *unstructured.Unstructured, policy metav1.DeletionPropagation) {
	w.Helper()
	err := w.client(kindOf(o), o.GetNamespace()).Delete(w.Context(), o.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy})
	if err != nil {
		w.Fatal(err)
	}
}

// get reads an object; nil if it does not exist any more.
func (w *world) get(o *unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	live, err := w.client(kindOf(o), o.GetNamespace()).Get(w.Context(), o.GetName(), metav1.GetOptions{})
	switch {
	case catalog.Denies(err, kindOf(o).resource.GroupResource(), o.GetName()) || err == nil && live.GetUID() != o.GetUID():
		return nil
	case err != nil:
		w.Fatal(err)
	}
	return live
}

// goes waits until objects do not exist any more.
func (w *world) goes(objects ...*unstructured.Unstructured) {
	w.Helper()
	for _, o := range objects {
		devtest.Eventually(w, patience, func() error {
			if live := w.get(o); live != nil {
				return fmt.Errorf("%s %s is still there: finalizers %v, owners %v; decided: %v", o.GetKind(), o.GetName(),
					live.GetFinalizers(), live.GetOwnerReferences(), w.collector.Records(o.GetUID()))
			}
			return nil
		})
	}
}

// stays makes sure that objects are there, and not on their way out, once the
// collector has nothing more to do.
func (w *world) stays(objects ...*unstructured.Unstructured) {
	w.Helper()
	w.calm()
	for _, o := range objects {
		live := w.get(o)
		if live == nil {
			w.Fatalf("%s %s is gone; decided: %v", o.GetKind(), o.GetName(), w.collector.Records(o.GetUID()))
		}
		if live.GetDeletionTimestamp() != nil {
			w.Fatalf("%s %s is being deleted; decided: %v", o.GetKind(), o.GetName(), w.collector.Records(o.GetUID()))
		}
	}
}

// calm waits until the collector has taken in everything that happened before,
// and has nothing in hand. A pair that is made and collected shows the former.
func (w *world) calm() {
	w.Helper()
	owner := w.make(thing{name: "calm-owner-" + rand.String(5)})
	dependent := w.make(thing{name: "calm-" + rand.String(5), owners: owns(owner)})
	w.delete(owner, background)
	w.goes(dependent)
	devtest.Eventually(w, patience, func() error {
		if n := w.collector.Pending(); n != 0 {
			return fmt.Errorf("%d objects are in hand", n)
		}
		return nil
	})
}

// seen waits until the collector's graph has objects.
func (w *world) seen(objects ...*unstructured.Unstructured) {
	w.Helper()
	for _, o := range objects {
		devtest.Eventually(w, patience, func() error {
			if !w.collector.HasUID(o.GetUID()) {
				return fmt.Errorf("%s is not in the graph", o.GetName())
			}
			return nil
		})
	}
}

// forgotten waits until the collector's graph has no node of objects.
func (w *world) forgotten(objects ...*unstructured.Unstructured) {
	w.Helper()
	for _, o := range objects {
		devtest.Eventually(w, patience, func() error {
			if w.collector.HasUID(o.GetUID()) {
				return fmt.Errorf("%s is still in the graph", o.GetName())
			}
			return nil
		})
	}
}

// patch applies a merge patch.
func (w *world) patch(o *unstructured.Unstructured, patch any) {
	w.Helper()
	body, err := json.Marshal(patch)
	if err != nil {
		w.Fatal(err)
	}
	_, err = w.client(kindOf(o), o.GetNamespace()).Patch(w.Context(), o.GetName(), types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		w.Fatal(err)
	}
}

// owners returns the names of an object's owners.
func (w *world) owners(o *unstructured.Unstructured) []string {
	w.Helper()
	live := w.get(o)
	if live == nil {
		w.Fatalf("%s is gone", o.GetName())
	}
	names := []string{}
	for _, ref := range live.GetOwnerReferences() {
		names = append(names, ref.Name)
	}
	return names
}

// ownedBy waits until an object has just these owners.
func (w *world) ownedBy(o *unstructured.Unstructured, names ...string) {
	w.Helper()
	devtest.Eventually(w, patience, func() error {
		if got := w.owners(o); strings.Join(got, ",") != strings.Join(names, ",") {
			return fmt.Errorf("%s is owned by %v, want %v", o.GetName(), got, names)
		}
		return nil
	})
}

var pod = &kind{resource: pods, kind: "Pod", namespaced: true, spec: map[string]any{
	"containers": []any{map[string]any{"name": "pause", "image": "pause"}},
}}

// define makes a custom type, of which objects can be made when it returns. It
// has a group of its own: an API server takes a group away with its last type,
// and may do so a little after the next one came.
func (w *world) define(namespaced bool) *kind {
	w.Helper()
	plural := "things" + rand.String(6)
	group := plural + ".gleaner.dev"
	scope := apiextensionsv1.ClusterScoped
	if namespaced {
		scope = apiextensionsv1.NamespaceScoped
	}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: scope,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: plural, Singular: strings.TrimSuffix(plural, "s"), Kind: strings.ToUpper(plural[:1]) + plural[1:], ListKind: plural + "List",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)},
				},
			}},
		},
	}
	w.defineAs(crd)
	return &kind{resource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}, kind: crd.Spec.Names.Kind, namespaced: namespaced}
}

func (w *world) defineAs(crd *apiextensionsv1.CustomResourceDefinition) {
	w.Helper()
	if _, err := w.types.ApiextensionsV1().CustomResourceDefinitions().Create(w.Context(), crd, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), patience)
		defer cancel()
		_ = w.types.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, crd.Name, metav1.DeleteOptions{})
	})
	resource := schema.GroupVersionResource{Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name, Resource: crd.Spec.Names.Plural}
	devtest.Eventually(w, patience, func() error {
		_, err := w.client(&kind{resource: resource, namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped}, "").Get(w.Context(), "none", metav1.GetOptions{})
		if !catalog.Denies(err, resource.GroupResource(), "none") {
			return fmt.Errorf("the API server does not serve it yet: %w", err)
		}
		return nil
	})
}

// warning waits for the event that an object's reference leads into another
// namespace, and returns it.
func (w *world) warning(o *unstructured.Unstructured) corev1.Event {
	w.Helper()
	namespace := o.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	var found corev1.Event
	devtest.Eventually(w, patience, func() error {
		list, err := w.kube.CoreV1().Events(namespace).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.InvolvedObject.UID == o.GetUID() && e.Reason == "OwnerRefInvalidNamespace" {
				found = e
				return nil
			}
		}
		return errors.New("no such event")
	})
	return found
}
