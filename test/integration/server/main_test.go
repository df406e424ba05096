// Package server tests what the collector relies on in the API server: the effects of a
// DELETE, and who may refuse it. No collector and no controller runs on the control
// plane of these tests.
package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

const (
	timeout = time.Minute

	testFinalizer    = "test.gleaner.dev/hold"
	orphanFinalizer  = metav1.FinalizerOrphanDependents
	foregroundFinal  = metav1.FinalizerDeleteDependents
	backgroundPolicy = metav1.DeletePropagationBackground
	foregroundPolicy = metav1.DeletePropagationForeground
	orphanPolicy     = metav1.DeletePropagationOrphan
)

func TestMain(m *testing.M) { devtest.Run(m, devcluster.Options{NoControllerManager: true}) }

// api is one test's namespace, and access to it.
type api struct {
	*testing.T
	config  *rest.Config
	objects dynamic.Interface
	ns      string
}

func newAPI(t *testing.T) *api {
	t.Helper()
	config := rest.CopyConfig(devtest.Shared(t).RESTConfig())
	config.WarningHandler = rest.NoWarnings{} // except in tests that collect them
	return &api{T: t, config: config, objects: dynamic.NewForConfigOrDie(config), ns: devtest.Namespace(t, config)}
}

// kind is a type of object.
type kind struct {
	schema.GroupVersionResource
	kind          string
	clusterScoped bool
	rest          map[string]any // of an object, except its metadata
}

func (k kind) String() string { return k.Resource + "." + k.Group }

func (a *api) client(k kind) dynamic.ResourceInterface {
	if k.clusterScoped {
		return a.objects.Resource(k.GroupVersionResource)
	}
	return a.objects.Resource(k.GroupVersionResource).Namespace(a.ns)
}

// object returns an object with a new name.
func object(k kind, finalizers ...string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	for field, value := range k.rest {
		o.Object[field] = value
	}
	o.SetGroupVersionKind(k.GroupVersion().WithKind(k.kind))
	o.SetName("thing-" + rand.String(8))
	o.SetFinalizers(finalizers)
	return o
}

func (a *api) createNew(k kind, finalizers ...string) *unstructured.Unstructured {
	a.Helper()
	return a.create(k, object(k, finalizers...))
}

func (a *api) create(k kind, o *unstructured.Unstructured) *unstructured.Unstructured {
	a.Helper()
	made, err := a.client(k).Create(a.Context(), o, metav1.CreateOptions{})
	if err != nil {
		a.Fatal(err)
	}
	return made
}

func (a *api) delete(k kind, o *unstructured.Unstructured, options metav1.DeleteOptions) {
	a.Helper()
	if err := a.client(k).Delete(a.Context(), o.GetName(), options); err != nil {
		a.Fatal(err)
	}
}

// get reads an object; nil if it does not exist.
func (a *api) get(k kind, o *unstructured.Unstructured) *unstructured.Unstructured {
	a.Helper()
	live, err := a.client(k).Get(a.Context(), o.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		a.Fatal(err)
	}
	return live
}

// patch applies a merge patch.
func (a *api) patch(k kind, o *unstructured.Unstructured, metadata map[string]any) error {
	a.Helper()
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		a.Fatal(err)
	}
	_, err = a.client(k).Patch(a.Context(), o.GetName(), types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

// expectFinalizers compares the finalizers of an object, except the one that keeps it.
func (a *api) expectFinalizers(k kind, o *unstructured.Unstructured, want ...string) {
	a.Helper()
	live := a.get(k, o)
	if live == nil {
		a.Errorf("%s: gone", k)
		return
	}
	got := slices.DeleteFunc(live.GetFinalizers(), func(f string) bool { return f == testFinalizer })
	want = slices.DeleteFunc(slices.Clone(want), func(f string) bool { return f == "" })
	if diff := cmp.Diff(append([]string{}, want...), append([]string{}, got...)); diff != "" {
		a.Errorf("%s: finalizers (-want +got):\n%s", k, diff)
	}
}

// deleteResult is the response to a DELETE.
type deleteResult struct {
	Code int
	Kind string // of the body
}

// deleteRaw returns the HTTP status, which clients hide.
func (a *api) deleteRaw(o *unstructured.Unstructured, options metav1.DeleteOptions) deleteResult {
	a.Helper()
	options.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
	body, err := json.Marshal(options)
	if err != nil {
		a.Fatal(err)
	}
	client, err := rest.HTTPClientFor(a.config)
	if err != nil {
		a.Fatal(err)
	}
	url := fmt.Sprintf("%s/api/v1/namespaces/%s/configmaps/%s", a.config.Host, a.ns, o.GetName())
	request, err := http.NewRequestWithContext(a.Context(), http.MethodDelete, url, strings.NewReader(string(body)))
	if err != nil {
		a.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		a.Fatal(err)
	}
	defer response.Body.Close()
	var object metav1.TypeMeta
	if err := json.NewDecoder(response.Body).Decode(&object); err != nil {
		a.Fatal(err)
	}
	return deleteResult{response.StatusCode, object.Kind}
}

// deleteOptions returns options with a propagation policy; empty for none.
func deleteOptions(policy metav1.DeletionPropagation) metav1.DeleteOptions {
	if policy == "" {
		return metav1.DeleteOptions{}
	}
	return metav1.DeleteOptions{PropagationPolicy: &policy}
}

// orphanDependents returns options with the deprecated boolean.
func orphanDependents(yes bool) metav1.DeleteOptions {
	return metav1.DeleteOptions{OrphanDependents: ptr.To(yes)} //nolint:staticcheck // deprecated, but still supported
}

// cleanupContext returns a context for cleanup.
func (a *api) cleanupContext() context.Context { return context.WithoutCancel(a.Context()) }
