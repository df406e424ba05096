// Package objects creates, reads, deletes and compares objects of any type on a real control plane,
// for tests of the archive and of restoring.
//
// It starts nothing, and knows nothing of Gleaner but its annotations.
package objects

import (
	"fmt"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	discoverycache "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// timeout is the timeout for everything that is waited for.
const timeout = 2 * time.Minute

// Env is the objects of a test. Errors fail the test. Create it with New.
type Env struct {
	*testing.T
	Namespace string // of objects that don't say otherwise; may be changed

	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

// New returns an Env with the client of a configuration.
func New(t *testing.T, config *rest.Config, namespace string) *Env {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS, config.WarningHandlerWithContext = -1, rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	types, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(discoverycache.NewMemCacheClient(types))
	return &Env{T: t, Namespace: namespace, client: client, mapper: mapper}
}

// Mapper returns what maps kinds to resources.
func (e *Env) Mapper() meta.RESTMapper { return e.mapper }

// Of returns the client for the type and the namespace of an object.
func (e *Env) Of(o *unstructured.Unstructured) dynamic.ResourceInterface {
	e.Helper()
	gvk := o.GroupVersionKind()
	var mapping *meta.RESTMapping
	devtest.Eventually(e, timeout, func() (err error) {
		mapping, err = e.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			e.mapper.Reset()
		}
		return err
	})
	return e.client.Resource(mapping.Resource).Namespace(o.GetNamespace())
}

// Create creates the object of a manifest, in the namespace of the test unless it says otherwise, with
// owners.
func (e *Env) Create(manifest string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	e.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
		e.Fatal(err)
	}
	if namespaced(o) && o.GetNamespace() == "" {
		o.SetNamespace(e.Namespace)
	}
	var refs []metav1.OwnerReference
	for _, owner := range owners {
		refs = append(refs, metav1.OwnerReference{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()})
	}
	if len(refs) != 0 {
		o.SetOwnerReferences(refs)
	}
	var created *unstructured.Unstructured
	devtest.Eventually(e, timeout, func() (err error) { // a type may be served only by and by
		created, err = e.Of(o).Create(e.Context(), o, metav1.CreateOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			e.Fatal(err)
		}
		return err
	})
	return created
}

func namespaced(o *unstructured.Unstructured) bool {
	switch o.GetKind() {
	case "Namespace", "CustomResourceDefinition", "PersistentVolume", "ClusterRole", "ClusterRoleBinding", "ClusterArchivePolicy":
		return false
	default:
		return true
	}
}

// ConfigMap creates a ConfigMap with labels and data.
func (e *Env) ConfigMap(name string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	e.Helper()
	return e.Create(fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, labels: {a: b}}, data: {k: v}}", name), owners...)
}

// Read reads an object again; nil: it does not exist.
func (e *Env) Read(o *unstructured.Unstructured) *unstructured.Unstructured {
	e.Helper()
	live, err := e.Of(o).Get(e.Context(), o.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		e.Fatal(err)
	}
	return live
}

// List returns the objects of a kind in the namespace of the test.
func (e *Env) List(apiVersion, kind string) []*unstructured.Unstructured {
	e.Helper()
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(e.Namespace)
	page, err := e.Of(o).List(e.Context(), metav1.ListOptions{})
	if err != nil {
		e.Fatal(err)
	}
	var all []*unstructured.Unstructured
	for i := range page.Items {
		all = append(all, &page.Items[i])
	}
	return all
}

// Delete deletes an object, without waiting until it is gone. That it does not exist is no error.
func (e *Env) Delete(o *unstructured.Unstructured, propagation metav1.DeletionPropagation) {
	e.Helper()
	now := int64(0)
	err := e.Of(o).Delete(e.Context(), o.GetName(), metav1.DeleteOptions{PropagationPolicy: &propagation, GracePeriodSeconds: &now})
	if err != nil && !apierrors.IsNotFound(err) {
		e.Fatal(err)
	}
}

// Remove deletes objects in the background, and waits until they and all others given are gone.
func (e *Env) Remove(roots []*unstructured.Unstructured, all ...*unstructured.Unstructured) {
	e.Helper()
	for _, o := range roots {
		e.Delete(o, metav1.DeletePropagationBackground)
	}
	e.WaitForDeletion(slices.Concat(roots, all)...)
}

// WaitForDeletion waits until objects are gone. Another one may have their name.
func (e *Env) WaitForDeletion(all ...*unstructured.Unstructured) {
	e.Helper()
	devtest.Eventually(e, timeout, func() error {
		for _, o := range all {
			if live := e.Read(o); live != nil && live.GetUID() == o.GetUID() {
				return fmt.Errorf("%s %s still exists, with finalizers %v", o.GetKind(), o.GetName(), live.GetFinalizers())
			}
		}
		return nil
	})
}

// WaitForPods waits until there are n Pods that are not being deleted.
func (e *Env) WaitForPods(n int) (pods []*unstructured.Unstructured) {
	e.Helper()
	devtest.Eventually(e, timeout, func() error {
		pods = nil
		for _, p := range e.List("v1", "Pod") {
			if p.GetDeletionTimestamp() == nil {
				pods = append(pods, p)
			}
		}
		if len(pods) != n {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	})
	return pods
}
