package retainer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/crds/resources"
	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/bulkread"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/retainer"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/operator/writer"
	"github.com/gleaner-dev/gleaner/policies"
)

// world is an API server with ConfigMaps, Secrets, Pods and Namespaces, and a Retainer.
type world struct {
	*testing.T
	*retainer.Retainer
	gate     gate.Gate
	builder  *policyset.Builder
	policies latest.Value[[]*policyset.Retention]
	steps    []writer.Step
	served   []string // kinds
	current  *catalog.Catalog

	maxObjects int

	mu       sync.Mutex // covers what follows
	objects  map[types.UID]*unstructured.Unstructured
	version  int
	watchers map[string][]*watch.RaceFreeFakeWatcher // by resource
	shown    []change                                // what watches from an earlier version are shown
	silent   bool                                    // watches show nothing
	fails    func(verb, resource, name string) error
	lists    map[string]int // by resource
	outcomes []retainer.Outcome
	asking

	propagation map[string]metav1.DeletionPropagation // of deletions, by namespace
}

var kinds = map[string]string{"ConfigMap": "configmaps", "Secret": "secrets", "Pod": "pods", "Namespace": "namespaces", "Widget": "widgets"}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		T: t, objects: map[types.UID]*unstructured.Unstructured{}, version: 100, watchers: map[string][]*watch.RaceFreeFakeWatcher{}, lists: map[string]int{},
		propagation: map[string]metav1.DeletionPropagation{},
		fails:       func(string, string, string) error { return nil }, served: slices.Sorted(maps.Keys(kinds)),
	}
	var err error
	if w.builder, err = policyset.NewBuilder(policyset.Rules{}, nil); err != nil {
		t.Fatal(err)
	}
	w.gate.SetLease(func() error { return nil })
	w.gate.Lead()
	return w
}

func (w *world) types() *catalog.Catalog {
	list := &metav1.APIResourceList{GroupVersion: "v1"}
	lists := []*metav1.APIResourceList{list}
	for _, kind := range w.served {
		if kind == "Widget" {
			lists = append(lists, &metav1.APIResourceList{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{
				{Name: "widgets", Kind: "Widget", Namespaced: true, Verbs: metav1.Verbs{"list", "watch", "get", "patch", "delete"}},
			}})
			continue
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: kinds[kind], Kind: kind, Namespaced: kind != "Namespace", Verbs: metav1.Verbs{"list", "watch", "get", "patch", "delete"},
		})
	}
	return catalog.Build(nil, lists, catalog.Settings{})
}

// serve has the API server serve some kinds.
func (w *world) serve(kinds ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.served = kinds
	w.current = w.types()
}

func (w *world) catalog() *catalog.Catalog {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current
}

// endWatches ends the watches of a resource with an expired version.
func (w *world) endWatches(resource string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, watcher := range w.watchers[resource] {
		if !watcher.Stopped {
			watcher.Error(&apierrors.NewResourceExpired("too old").ErrStatus)
		}
	}
}

// run runs the Retainer until the test ends.
func (w *world) run() {
	w.Helper()
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{})
	client.PrependWatchReactor("*", w.watch)
	deleter := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
	deleter.PrependReactor("delete", "*", w.deleteReactor)
	w.serve(w.served...)
	w.Retainer = retainer.New(retainer.Options{
		Policies: w.policies.Load, Changed: w.policies.Changed,
		Catalog: w.catalog,
		Absent:  func(context.Context, schema.GroupKind) (bool, error) { return true, w.failure("absent", "", "") },
		Lister:  w, Client: client, Reader: w, Evaluator: w, Graph: w, Steps: append(w.steps, passing{}), Gate: &w.gate, Record: w.record, Now: time.Now, Log: logr.Discard(),
		Actor:   act.New(deleter, w.catalog, func() (statekey.Keys, error) { return statekey.Keys{}, nil }),
		Ignored: "gleaner-system", MaxObjects: w.maxObjects,
	})
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error)
	go func() { ended <- w.Retainer.Run(ctx) }()
	w.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	})
}

type passing struct{}

func (passing) Admit(context.Context, writer.Write) (writer.Admission, error) {
	return writer.Admission{Outcome: writer.Pass}, nil
}
func (passing) Settle(context.Context, writer.Write, writer.Settlement) {}

// apply sets the policies in force; each is a spec in YAML, by namespace/name, or name for a ClusterRetentionPolicy.
func (w *world) apply(specs map[string]string) {
	w.Helper()
	var r policyset.Resources
	for _, key := range slices.Sorted(maps.Keys(specs)) {
		var spec v1alpha1.RetentionPolicySpec
		if err := yaml.UnmarshalStrict([]byte(specs[key]), &spec); err != nil {
			w.Fatal(err)
		}
		w.version++
		meta := metav1.ObjectMeta{Name: key, UID: types.UID(key), Generation: int64(w.version)}
		if namespace, name, is := cut(key); is {
			meta.Namespace, meta.Name = namespace, name
			o := &v1alpha1.RetentionPolicy{ObjectMeta: meta, Spec: spec}
			r.Retentions = append(r.Retentions, resources.Retention{Object: o, Kind: v1alpha1.KindRetentionPolicy, Meta: meta, Spec: spec})
			continue
		}
		o := &v1alpha1.ClusterRetentionPolicy{ObjectMeta: meta, Spec: spec}
		r.Retentions = append(r.Retentions, resources.Retention{Object: o, Kind: v1alpha1.KindClusterRetentionPolicy, Meta: meta, Spec: spec})
	}
	w.policies.Store(w.builder.Build(r, nil).Retentions)
}

func cut(key string) (namespace, name string, is bool) {
	for i := range key {
		if key[i] == '/' {
			return key[:i], key[i+1:], true
		}
	}
	return "", key, false
}

// put creates or changes an object, and shows it to watches. Its UID is its kind and name.
func (w *world) put(manifest string, age time.Duration) {
	w.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
		w.Fatal(err)
	}
	o.SetAPIVersion(map[bool]string{true: "example.com/v1", false: "v1"}[o.GetKind() == "Widget"])
	o.SetUID(types.UID(o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()))
	o.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-age).Truncate(time.Second)))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
	o.SetResourceVersion(strconv.Itoa(w.version))
	w.objects[o.GetUID()] = o
	w.show(watch.Modified, o)
}

// remove removes an object, as somebody else does.
func (w *world) remove(uid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.objects[types.UID(uid)]; o != nil {
		delete(w.objects, o.GetUID())
		w.version++
		w.show(watch.Deleted, o)
	}
}

// change is one that watches show.
type change struct {
	version int
	kind    watch.EventType
	object  *unstructured.Unstructured
}

// show shows a change to watches. The caller holds mu.
func (w *world) show(kind watch.EventType, o *unstructured.Unstructured) {
	if w.silent {
		return
	}
	c := change{w.version, kind, o.DeepCopy()}
	c.object.SetResourceVersion(strconv.Itoa(w.version))
	w.shown = append(w.shown, c)
	for _, watcher := range w.watchers[kinds[o.GetKind()]] {
		if !watcher.Stopped {
			watcher.Action(kind, c.object.DeepCopy())
		}
	}
}

// watch shows what has changed since a version.
func (w *world) watch(a clienttesting.Action) (bool, watch.Interface, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	since, err := strconv.Atoi(a.(clienttesting.WatchActionImpl).ListOptions.ResourceVersion)
	if err != nil {
		return true, nil, err
	}
	resource, watcher := a.GetResource().Resource, watch.NewRaceFreeFake()
	w.watchers[resource] = append(w.watchers[resource], watcher)
	for _, c := range w.shown {
		if c.version > since && kinds[c.object.GetKind()] == resource {
			watcher.Action(c.kind, c.object.DeepCopy())
		}
	}
	return true, watcher, nil
}

func (w *world) failure(verb, resource, name string) error {
	w.mu.Lock()
	fails := w.fails
	w.mu.Unlock()
	return fails(verb, resource, name)
}

func (w *world) setFails(f func(verb, resource, name string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fails = f
}

func (w *world) deleteReactor(a clienttesting.Action) (bool, runtime.Object, error) {
	d := a.(clienttesting.DeleteActionImpl)
	if err := w.failure("delete", d.GetResource().Resource, d.GetName()); err != nil {
		return true, nil, err
	}
	w.mu.Lock()
	var found *unstructured.Unstructured
	for _, o := range w.objects {
		if kinds[o.GetKind()] == d.GetResource().Resource && o.GetNamespace() == d.GetNamespace() && o.GetName() == d.GetName() {
			found = o
		}
	}
	w.mu.Unlock()
	p := d.DeleteOptions.Preconditions
	switch {
	case found == nil:
		return true, nil, apierrors.NewNotFound(d.GetResource().GroupResource(), d.GetName())
	case p == nil || *p.UID != found.GetUID() || *p.ResourceVersion != found.GetResourceVersion():
		return true, nil, apierrors.NewConflict(d.GetResource().GroupResource(), d.GetName(), fmt.Errorf("precondition"))
	}
	w.mu.Lock()
	w.propagation[d.GetNamespace()] = *d.DeleteOptions.PropagationPolicy
	w.mu.Unlock()
	w.remove(string(found.GetUID()))
	return true, nil, nil
}

// List implements follow.Lister.
func (w *world) List(_ context.Context, resource schema.GroupVersionResource, namespace, _ string, _, _ int) (bulkread.Page, error) {
	if err := w.failure("list", resource.Resource, namespace); err != nil {
		return bulkread.Page{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists[resource.Resource]++
	page := bulkread.Page{ResourceVersion: strconv.Itoa(w.version)}
	for _, o := range w.objects {
		if kinds[o.GetKind()] != resource.Resource || namespace != "" && o.GetNamespace() != namespace {
			continue
		}
		data, err := json.Marshal(o.Object)
		if err != nil {
			return page, err
		}
		page.Items = append(page.Items, bulkread.Item{Name: o.GetName(), JSON: data})
	}
	return page, nil
}

// Get implements modulecall.Reader.
func (w *world) Get(_ context.Context, _ policies.ServiceAccount, resource schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	if err := w.failure("get", resource.Resource, name); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.objects {
		if kinds[o.GetKind()] == resource.Resource && o.GetNamespace() == namespace && o.GetName() == name {
			return o.DeepCopy(), nil
		}
	}
	return nil, apierrors.NewNotFound(resource.GroupResource(), name)
}

// Namespace implements modulecall.Reader.
func (w *world) Namespace(_ context.Context, name string) (modulecall.Namespace, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.objects {
		if o.GetKind() == "Namespace" && o.GetName() == name {
			return modulecall.Namespace{Labels: labels.Set(o.GetLabels())}, nil
		}
	}
	return modulecall.Namespace{}, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
}

func (w *world) record(o retainer.Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outcomes = append(w.outcomes, o)
}

// names returns the names of the objects of a kind that exist.
func (w *world) names(kind string) (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.objects {
		if o.GetKind() == kind {
			list = append(list, o.GetName())
		}
	}
	slices.Sort(list)
	return list
}

func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			status, _ := w.Status().Load()
			w.Fatalf("not within 20 s: %s; status %+v", what, status)
		}
	}
}

func (w *world) expectLeft(kind string, names ...string) {
	w.Helper()
	w.eventually(fmt.Sprintf("%ss are %q", kind, names), func() bool { return slices.Equal(w.names(kind), names) })
}

// status waits until the status of a policy is as wanted.
func (w *world) status(uid, what string, is func(retainer.PolicyStatus) bool) {
	w.Helper()
	w.eventually("the status of "+uid+" shows "+what, func() bool {
		all, _ := w.Status().Load()
		s, known := all[types.UID(uid)]
		return known && is(s)
	})
}
