package archiver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"filippo.io/age"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/filestore"
	"github.com/gleaner-dev/gleaner/operator/archiver"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/policyset/policysettest"
	"github.com/gleaner-dev/gleaner/operator/writer"
	"github.com/gleaner-dev/gleaner/policies"
)

// world is an Archiver with a store in a folder, and an API server with ConfigMaps, Secrets and Pods.
type world struct {
	*testing.T
	*archiver.Archiver
	store    *filestore.Store
	storeErr error // of Store
	snapshot *policyset.Snapshot
	now      time.Time // of the Archiver, if it is set

	objects      map[string]*unstructured.Unstructured // by kind and name
	graph        map[graph.ID]graph.View
	readErr      error
	namespace    map[string]string // labels of each namespace
	namespaceErr error
	reads        int
}

// newWorld returns a world with archive policies.
func newWorld(t *testing.T, resources ...client.Object) *world {
	t.Helper()
	w := &world{T: t, objects: map[string]*unstructured.Unstructured{}, graph: map[graph.ID]graph.View{}}
	store, err := filestore.Open(t.TempDir(), filestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	w.store = store
	served := catalog.Build(nil, []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: all},
		{Name: "secrets", Kind: "Secret", Namespaced: true, Verbs: all},
		{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: all},
	}}}, catalog.Settings{})
	w.Archiver = archiver.New(archiver.Options{
		Store: w.currentStore, Snapshot: func() *policyset.Snapshot { return w.snapshot }, Catalog: func() *catalog.Catalog { return served },
		Reader: w, Now: w.currentTime, OnChange: func() {},
		Lookup: func(id graph.ID) (graph.View, bool) { v, ok := w.graph[id]; return v, ok },
	})
	w.snapshot = policysettest.New(t, func(o *policysettest.Options) {
		o.Archiver = w.Archiver
		o.Rules.CheckRecipients = func(keys []string) error {
			for _, key := range keys {
				if _, err := archive.ParseRecipients(key); err != nil {
					return err
				}
			}
			return nil
		}
	}, resources...).Settle()
	return w
}

func (w *world) currentTime() time.Time {
	if w.now.IsZero() {
		return time.Now()
	}
	return w.now
}

var all = metav1.Verbs{"get", "list", "watch", "delete", "patch"}

func (w *world) currentStore() (archive.Store, error) {
	if w.storeErr != nil {
		return nil, w.storeErr
	}
	return w.store, nil
}

// Get implements modulecall.Reader.
func (w *world) Get(_ context.Context, _ policies.ServiceAccount, r schema.GroupVersionResource, _, name string) (*unstructured.Unstructured, error) {
	w.reads++
	if w.readErr != nil {
		return nil, w.readErr
	}
	o, ok := w.objects[r.Resource+"/"+name]
	if !ok {
		return nil, apierrors.NewNotFound(r.GroupResource(), name)
	}
	return o.DeepCopy(), nil
}

// Namespace implements modulecall.Reader.
func (w *world) Namespace(context.Context, string) (modulecall.Namespace, error) {
	return modulecall.Namespace{Labels: w.namespace}, w.namespaceErr
}

// given creates an object, whose UID is its name.
func (w *world) given(kind, name string, change ...func(*unstructured.Unstructured)) graph.Object {
	resource := map[string]string{"ConfigMap": "configmaps", "Secret": "secrets", "Pod": "pods"}[kind]
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind, "data": map[string]any{"key": "value of " + name}}}
	o.SetNamespace("shop")
	o.SetName(name)
	o.SetUID(types.UID(name))
	o.SetResourceVersion("7")
	for _, c := range change {
		c(o)
	}
	w.objects[resource+"/"+name] = o
	return graph.ObjectOf(o.GroupVersionKind(), o)
}

// delete has a write that deletes an object pass the step, and reports whether it was sent.
func (w *world) delete(o graph.Object, cause ...writer.Cause) (sent bool, result act.Result, err error) {
	w.Helper()
	write := writer.Write{Origin: writer.Collector, Target: o, Effect: writer.Deletes, Do: func(context.Context) (act.Result, error) {
		sent = true
		return act.Done, nil
	}}
	if len(cause) != 0 {
		write.Cause = cause[0]
	}
	result, err = writer.Writer{Steps: []writer.Step{w.Step()}}.Do(w.Context(), write)
	return sent, result, err
}

// headers returns the headers in the archive, the newest first.
func (w *world) headers(q archive.Query) (list []archive.Header) {
	w.Helper()
	err := w.store.Headers(w.Context(), q, func(h archive.Header) bool {
		list = append(list, h)
		return true
	})
	if err != nil {
		w.Fatal(err)
	}
	return list
}

// open returns an archived object.
func (w *world) open(h archive.Header, identities ...age.Identity) *unstructured.Unstructured {
	w.Helper()
	body, err := w.store.Body(w.Context(), h)
	if err != nil {
		w.Fatal(err)
	}
	o, err := archive.Open(h, body, identities...)
	if err != nil {
		w.Fatal(err)
	}
	return o
}

// policy returns a ClusterArchivePolicy of resources of the core group.
func policy(name string, change func(*v1alpha1.ArchivePolicySpec), resources ...string) client.Object {
	meta := policysettest.Meta("", name)
	meta.UID = types.UID(name)
	meta.Finalizers = []string{v1alpha1.InUseFinalizer}
	spec := v1alpha1.ArchivePolicySpec{Resources: []v1alpha1.ResourceRule{{APIGroups: []string{""}, Resources: resources}}}
	if change != nil {
		change(&spec)
	}
	return &v1alpha1.ClusterArchivePolicy{ObjectMeta: meta, Spec: spec}
}

func onFailureContinue(s *v1alpha1.ArchivePolicySpec) { s.OnFailure = v1alpha1.OnFailureContinue }

var errOffline = errors.New("connection refused")
