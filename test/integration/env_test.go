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
	"github.com/gleaner-dev/gleaner/operator/run"
)

const timeout = time.Minute

// env is one test's namespace and its clients.
type env struct {
	*testing.T
	collector *run.Operator
	config    *rest.Config
	kube      kubernetes.Interface
	objects   dynamic.Interface
	types     apiextensions.Interface
	ns        string
}

// newEnv creates a namespace for a test, with the shared collector
// running.
func newEnv(t *testing.T) *env {
	t.Helper()
	collector := sharedCollector(t)
	return newEnvOn(t, devtest.Shared(t).RESTConfig(), collector)
}

// newEnvOn is like newEnv, for any control plane and collector.
func newEnvOn(t *testing.T, config *rest.Config, collector *run.Operator) *env {
	t.Helper()
	return &env{
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

// objectSpec describes an object to create: by default a ConfigMap in the test's
// namespace.
type objectSpec struct {
	name       string
	owners     []metav1.OwnerReference
	finalizers []string
	namespace  string // default: the test's
	kind       *kind
}

// kind is a type of object; nil means ConfigMap.
type kind struct {
	resource   schema.GroupVersionResource
	kind       string
	namespaced bool
	spec       map[string]any
}

var configMap = &kind{resource: configMaps, kind: "ConfigMap", namespaced: true}

// clusterRole is a built-in cluster-scoped type.
var clusterRole = &kind{
	resource: schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	kind:     "ClusterRole",
}

func (w *env) client(k *kind, namespace string) dynamic.ResourceInterface {
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

// create creates an object.
func (w *env) create(th objectSpec) *unstructured.Unstructured {
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
	w.Cleanup(func() { w.release(k, made) })
	return made
}

// release releases an object, regardless of finalizers, when a test is over.
func (w *env) release(k *kind, o *unstructured.Unstructured) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), timeout)
	defer cancel()
	client := w.client(k, o.GetNamespace())
	_, _ = client.Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null,"ownerReferences":null}}`), metav1.PatchOptions{})
	if !k.namespaced {
		_ = client.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
	}
}

// ownerRefs returns non-blocking references to owners.
func ownerRefs(owners ...*unstructured.Unstructured) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for _, o := range owners {
		refs = append(refs, metav1.OwnerReference{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID()})
	}
	return refs
}

// blockingRefs returns blocking references to owners.
func blockingRefs(owners ...*unstructured.Unstructured) []metav1.OwnerReference {
	refs := ownerRefs(owners...)
	for i := range refs {
		refs[i].BlockOwnerDeletion = ptr.To(true)
	}
	return refs
}

// missingOwnerRef returns a reference to an owner that never existed.
func missingOwnerRef() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "never-" + rand.String(5), UID: types.UID("never-" + rand.String(20))}
}

const (
	background = metav1.DeletePropagationBackground
	foreground = metav1.DeletePropagationForeground
	orphan     = metav1.DeletePropagationOrphan
)

// kindOf returns the kind of an object.
func kindOf(o *unstructured.Unstructured) *kind {
	gvk := o.GroupVersionKind()
	for _, k := range []*kind{configMap, pod, replicationController, clusterRole, hpa} {
		if k.kind == gvk.Kind && k.resource.Group == gvk.Group {
			return k
		}
	}
	return &kind{
		resource:   gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind)), // named as by define
		kind:       gvk.Kind,
		namespaced: o.GetNamespace() != "",
	}
}

// delete deletes an object with a propagation policy.
func (w *env) delete(o *unstructured.Unstructured, policy metav1.DeletionPropagation) {
	w.Helper()
	err := w.client(kindOf(o), o.GetNamespace()).Delete(w.Context(), o.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy})
	if err != nil {
		w.Fatal(err)
	}
}

// get reads an object; nil if it does not exist.
func (w *env) get(o *unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	live, err := w.client(kindOf(o), o.GetNamespace()).Get(w.Context(), o.GetName(), metav1.GetOptions{})
	switch {
	case catalog.ConfirmsNotFound(err, kindOf(o).resource.GroupResource(), o.GetName()) || err == nil && live.GetUID() != o.GetUID():
		return nil
	case err != nil:
		w.Fatal(err)
	}
	return live
}

// waitForDeletion waits until objects do not exist any more.
func (w *env) waitForDeletion(objects ...*unstructured.Unstructured) {
	w.Helper()
	for _, o := range objects {
		devtest.Eventually(w, timeout, func() error {
			if live := w.get(o); live != nil {
				return fmt.Errorf("%s %s still exists: finalizers %v, owners %v; decided: %v", o.GetKind(), o.GetName(),
					live.GetFinalizers(), live.GetOwnerReferences(), w.collector.Records(o.GetUID()))
			}
			return nil
		})
	}
}

// expectKept checks that objects exist and are not terminating, once the collector is
// idle.
func (w *env) expectKept(objects ...*unstructured.Unstructured) {
	w.Helper()
	w.waitUntilIdle()
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

// waitUntilIdle waits until the collector has processed all earlier events, and its queue is
// empty. The former is shown by a pair of objects that is created and collected.
func (w *env) waitUntilIdle() {
	w.Helper()
	owner := w.create(objectSpec{name: "calm-owner-" + rand.String(5)})
	dependent := w.create(objectSpec{name: "calm-" + rand.String(5), owners: ownerRefs(owner)})
	w.delete(owner, background)
	w.waitForDeletion(dependent)
	devtest.Eventually(w, timeout, func() error {
		if n := w.collector.Pending(); n != 0 {
			return fmt.Errorf("%d objects are pending", n)
		}
		return nil
	})
}

// waitForGraph waits until objects are in the collector's graph.
func (w *env) waitForGraph(objects ...*unstructured.Unstructured) {
	w.Helper()
	for _, o := range objects {
		devtest.Eventually(w, timeout, func() error {
			if !w.collector.HasUID(o.GetUID()) {
				return fmt.Errorf("%s is not in the graph", o.GetName())
			}
			return nil
		})
	}
}

// waitForRemovalFromGraph waits until objects are not in the collector's graph.
func (w *env) waitForRemovalFromGraph(objects ...*unstructured.Unstructured) {
	w.Helper()
	for _, o := range objects {
		devtest.Eventually(w, timeout, func() error {
			if w.collector.HasUID(o.GetUID()) {
				return fmt.Errorf("%s is still in the graph", o.GetName())
			}
			return nil
		})
	}
}

// patch applies a merge patch.
func (w *env) patch(o *unstructured.Unstructured, patch any) {
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

// ownerNames returns the names of an object's owners.
func (w *env) ownerNames(o *unstructured.Unstructured) []string {
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

// waitForOwners waits until an object has exactly these owners.
func (w *env) waitForOwners(o *unstructured.Unstructured, names ...string) {
	w.Helper()
	devtest.Eventually(w, timeout, func() error {
		if got := w.ownerNames(o); strings.Join(got, ",") != strings.Join(names, ",") {
			return fmt.Errorf("%s is owned by %v, want %v", o.GetName(), got, names)
		}
		return nil
	})
}

var pod = &kind{resource: pods, kind: "Pod", namespaced: true, spec: map[string]any{
	"containers": []any{map[string]any{"name": "pause", "image": "pause"}},
}}

// createType creates a custom type, and waits until objects can be created. Each type has its
// own group: an API server removes a group with its last type, possibly a little after the
// next one was created.
func (w *env) createType(namespaced bool) *kind {
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
	w.createCRD(crd)
	return &kind{resource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}, kind: crd.Spec.Names.Kind, namespaced: namespaced}
}

func (w *env) createCRD(crd *apiextensionsv1.CustomResourceDefinition) {
	w.Helper()
	if _, err := w.types.ApiextensionsV1().CustomResourceDefinitions().Create(w.Context(), crd, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), timeout)
		defer cancel()
		_ = w.types.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, crd.Name, metav1.DeleteOptions{})
	})
	resource := schema.GroupVersionResource{Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name, Resource: crd.Spec.Names.Plural}
	devtest.Eventually(w, timeout, func() error {
		_, err := w.client(&kind{resource: resource, namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped}, "").Get(w.Context(), "none", metav1.GetOptions{})
		if !catalog.ConfirmsNotFound(err, resource.GroupResource(), "none") {
			return fmt.Errorf("type is not served yet: %w", err)
		}
		return nil
	})
}

// waitForWarning waits for the event about an object's reference into another
// namespace, and returns it.
func (w *env) waitForWarning(o *unstructured.Unstructured) corev1.Event {
	w.Helper()
	namespace := o.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	var found corev1.Event
	devtest.Eventually(w, timeout, func() error {
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
		return errors.New("event not found")
	})
	return found
}
