package faults

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// auditor watches the objects of a test at the API server, and keeps
// their history. resourceVersions are those of one etcd, so events of
// different types are totally ordered.
type auditor struct {
	objects dynamic.Interface
	ns      string
	ctx     context.Context // of the watches
	stop    context.CancelFunc
	running sync.WaitGroup

	mu             sync.Mutex                        // covers the fields below
	kinds          map[schema.GroupVersionKind]*kind // that can be read
	watched        []*kind
	history        map[types.UID][]state
	allowedDeletes map[types.UID]int             // number of deletes of an object by the test
	ownWrites      map[string]struct{}           // resourceVersions written by the test
	removedTypes   map[schema.GroupKind]struct{} // types that the test removes with their objects
}

// state is an object from a resourceVersion on.
type state struct {
	version  uint64
	gone     bool
	inferred bool // detected by a list: the exact time and states in between are unknown
	object   *unstructured.Unstructured
}

func newAuditor(ctx context.Context, objects dynamic.Interface, namespace string) *auditor {
	ctx, stop := context.WithCancel(ctx)
	return &auditor{
		objects: objects, ns: namespace, ctx: ctx, stop: stop,
		kinds:          map[schema.GroupVersionKind]*kind{},
		history:        map[types.UID][]state{},
		allowedDeletes: map[types.UID]int{},
		ownWrites:      map[string]struct{}{},
		removedTypes:   map[schema.GroupKind]struct{}{},
	}
}

// watchType watches a type. It returns when the watch has begun.
func (w *auditor) watchType(k *kind) error {
	version, err := w.list(k)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.kinds[k.gvk()] = k
	if !slices.Contains(w.watched, k) {
		w.watched = append(w.watched, k)
	}
	w.mu.Unlock()
	w.running.Go(func() {
		for w.ctx.Err() == nil {
			version = w.watch(k, version)
		}
	})
	return nil
}

func (w *auditor) client(k *kind) dynamic.ResourceInterface {
	if !k.namespaced {
		return w.objects.Resource(k.resource)
	}
	return w.objects.Resource(k.resource).Namespace(w.ns)
}

// list records the existing objects, and those that are missing since the last list.
func (w *auditor) list(k *kind) (version string, err error) {
	list, err := w.client(k).List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	listed := map[types.UID]bool{}
	for i := range list.Items {
		w.record(&list.Items[i], false, len(w.history[list.Items[i].GetUID()]) != 0)
		listed[list.Items[i].GetUID()] = true
	}
	for uid, states := range w.history {
		last := states[len(states)-1]
		if last.gone || listed[uid] || last.object.GroupVersionKind().GroupKind() != k.gvk().GroupKind() {
			continue
		}
		missing := last.object.DeepCopy()
		missing.SetResourceVersion(list.GetResourceVersion())
		w.record(missing, true, true)
	}
	return list.GetResourceVersion(), nil
}

// watch records events until the watch ends, and returns the version to
// continue from.
func (w *auditor) watch(k *kind, version string) string {
	client, err := w.client(k).Watch(w.ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		if relisted, err := w.list(k); err == nil {
			return relisted
		}
		sleep(w.ctx)
		return version
	}
	defer client.Stop()
	for event := range client.ResultChan() {
		o, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type == apiwatch.Error {
			if relisted, err := w.list(k); err == nil {
				return relisted
			}
			sleep(w.ctx)
			return version
		}
		version = o.GetResourceVersion()
		w.mu.Lock()
		w.record(o, event.Type == apiwatch.Deleted, false)
		w.mu.Unlock()
	}
	return version
}

// record adds a state to an object's history. The caller holds the lock.
func (w *auditor) record(o *unstructured.Unstructured, gone, guessed bool) {
	version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("resourceVersion %q is not a number", o.GetResourceVersion()))
	}
	states := w.history[o.GetUID()]
	if n := len(states); n > 0 && states[n-1].version >= version && !gone {
		return
	}
	w.history[o.GetUID()] = append(states, state{version: version, gone: gone, inferred: guessed, object: o})
}

// allowDelete records that the test deletes an object.
func (w *auditor) allowDelete(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allowedDeletes[uid]++
}

// recordWrite records that the test has written an object.
func (w *auditor) recordWrite(o *unstructured.Unstructured) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ownWrites[o.GetResourceVersion()] = struct{}{}
}

// addKinds registers types that references refer to and the auditor does not
// watch.
func (w *auditor) addKinds(kinds ...*kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range kinds {
		w.kinds[k.gvk()] = k
	}
}

// allowTypeRemoval records that the test removes a type with all its objects.
func (w *auditor) allowTypeRemoval(k *kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removedTypes[k.gvk().GroupKind()] = struct{}{}
}

// checkCaughtUp returns an error if the auditor has not processed all events.
func (w *auditor) checkCaughtUp(ctx context.Context) error {
	w.mu.Lock()
	kinds := slices.Clone(w.watched)
	lost := maps.Clone(w.removedTypes)
	w.mu.Unlock()
	for _, k := range kinds {
		if _, ok := lost[k.gvk().GroupKind()]; ok {
			continue
		}
		list, err := w.client(k).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if err := w.compareWithList(k, list); err != nil {
			return err
		}
	}
	return nil
}

func (w *auditor) compareWithList(k *kind, list *unstructured.UnstructuredList) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	there := 0
	for _, states := range w.history {
		last := states[len(states)-1]
		if !last.gone && last.object.GroupVersionKind().GroupKind() == k.gvk().GroupKind() {
			there++
		}
	}
	for i := range list.Items {
		o := &list.Items[i]
		states := w.history[o.GetUID()]
		if len(states) == 0 || states[len(states)-1].object.GetResourceVersion() != o.GetResourceVersion() {
			return fmt.Errorf("witness has not seen %s %s at %s", k.kind, o.GetName(), o.GetResourceVersion())
		}
	}
	if there != len(list.Items) {
		return fmt.Errorf("witness has %d %s, want %d", there, k.kind, len(list.Items))
	}
	return nil
}

// existing returns the existing objects.
func (w *auditor) existing() []*unstructured.Unstructured {
	w.mu.Lock()
	defer w.mu.Unlock()
	var there []*unstructured.Unstructured
	for _, states := range w.history {
		if last := states[len(states)-1]; !last.gone {
			there = append(there, last.object)
		}
	}
	return there
}

// reset clears the history after the storage was restored: earlier resourceVersions
// can't be compared with later ones.
func (w *auditor) reset() error {
	w.stop()
	w.running.Wait()
	w.mu.Lock()
	w.ctx, w.stop = context.WithCancel(context.WithoutCancel(w.ctx))
	kinds := w.watched
	w.watched = nil
	clear(w.history)
	clear(w.allowedDeletes)
	w.mu.Unlock()
	for _, k := range kinds {
		if err := w.watchType(k); err != nil {
			return err
		}
	}
	return nil
}
