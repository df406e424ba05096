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

// witness watches the objects of a test at the API server itself, and keeps
// all that they ever were. resourceVersions are those of one etcd, so what
// happened to objects of different types has one order.
type witness struct {
	objects dynamic.Interface
	ns      string
	ctx     context.Context // of the watches
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex                        // covers what follows
	kinds   map[schema.GroupVersionKind]*kind // that can be read
	watched []*kind
	history map[types.UID][]state
	excused map[types.UID]int             // how often the test itself has deleted an object
	ours    map[string]struct{}           // resourceVersions that the test itself has written
	lost    map[schema.GroupKind]struct{} // types that the test takes away, with their objects
}

// state is an object as it was from a resourceVersion on.
type state struct {
	version uint64
	gone    bool
	guessed bool // when exactly is not known, nor what it was in between: a list has shown it, or that it is gone
	object  *unstructured.Unstructured
}

func newWitness(ctx context.Context, objects dynamic.Interface, namespace string) *witness {
	ctx, stop := context.WithCancel(ctx)
	return &witness{
		objects: objects, ns: namespace, ctx: ctx, stop: stop,
		kinds:   map[schema.GroupVersionKind]*kind{},
		history: map[types.UID][]state{},
		excused: map[types.UID]int{},
		ours:    map[string]struct{}{},
		lost:    map[schema.GroupKind]struct{}{},
	}
}

// follow has the witness watch a type. It returns when that has begun.
func (w *witness) follow(k *kind) error {
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

func (w *witness) client(k *kind) dynamic.ResourceInterface {
	if !k.namespaced {
		return w.objects.Resource(k.resource)
	}
	return w.objects.Resource(k.resource).Namespace(w.ns)
}

// list takes in what there is, and notes what is missing from it.
func (w *witness) list(k *kind) (version string, err error) {
	list, err := w.client(k).List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	listed := map[types.UID]bool{}
	for i := range list.Items {
		w.note(&list.Items[i], false, len(w.history[list.Items[i].GetUID()]) != 0)
		listed[list.Items[i].GetUID()] = true
	}
	for uid, states := range w.history {
		last := states[len(states)-1]
		if last.gone || listed[uid] || last.object.GroupVersionKind().GroupKind() != k.gvk().GroupKind() {
			continue
		}
		missing := last.object.DeepCopy()
		missing.SetResourceVersion(list.GetResourceVersion())
		w.note(missing, true, true)
	}
	return list.GetResourceVersion(), nil
}

// watch takes in what happens until the watch ends, and returns from where to
// go on.
func (w *witness) watch(k *kind, version string) string {
	client, err := w.client(k).Watch(w.ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		if relisted, err := w.list(k); err == nil {
			return relisted
		}
		pause(w.ctx)
		return version
	}
	defer client.Stop()
	for event := range client.ResultChan() {
		o, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type == apiwatch.Error {
			if relisted, err := w.list(k); err == nil {
				return relisted
			}
			pause(w.ctx)
			return version
		}
		version = o.GetResourceVersion()
		w.mu.Lock()
		w.note(o, event.Type == apiwatch.Deleted, false)
		w.mu.Unlock()
	}
	return version
}

// note adds a state to an object's history, under the lock.
func (w *witness) note(o *unstructured.Unstructured, gone, guessed bool) {
	version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("resourceVersion %q is no number", o.GetResourceVersion()))
	}
	states := w.history[o.GetUID()]
	if n := len(states); n > 0 && states[n-1].version >= version && !gone {
		return
	}
	w.history[o.GetUID()] = append(states, state{version: version, gone: gone, guessed: guessed, object: o})
}

// excuse notes that the test itself deletes an object.
func (w *witness) excuse(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.excused[uid]++
}

// wrote notes that the test itself has written an object.
func (w *witness) wrote(o *unstructured.Unstructured) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ours[o.GetResourceVersion()] = struct{}{}
}

// knows tells the witness of types that references name, and that it does not
// watch.
func (w *witness) knows(kinds ...*kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range kinds {
		w.kinds[k.gvk()] = k
	}
}

// loses notes that the test itself takes a type away with all its objects.
func (w *witness) loses(k *kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost[k.gvk().GroupKind()] = struct{}{}
}

// caughtUp says what the witness has not seen yet.
func (w *witness) caughtUp(ctx context.Context) error {
	w.mu.Lock()
	kinds := slices.Clone(w.watched)
	lost := maps.Clone(w.lost)
	w.mu.Unlock()
	for _, k := range kinds {
		if _, ok := lost[k.gvk().GroupKind()]; ok {
			continue
		}
		list, err := w.client(k).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if err := w.agrees(k, list); err != nil {
			return err
		}
	}
	return nil
}

func (w *witness) agrees(k *kind, list *unstructured.UnstructuredList) error {
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
			return fmt.Errorf("the witness has not seen %s %s at %s", k.kind, o.GetName(), o.GetResourceVersion())
		}
	}
	if there != len(list.Items) {
		return fmt.Errorf("the witness sees %d of %s, and there are %d", there, k.kind, len(list.Items))
	}
	return nil
}

// survivors returns what is there now.
func (w *witness) survivors() []*unstructured.Unstructured {
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

// forget begins anew, on a storage that was restored: resourceVersions from
// before say nothing of what is newer.
func (w *witness) forget() error {
	w.stop()
	w.running.Wait()
	w.mu.Lock()
	w.ctx, w.stop = context.WithCancel(context.WithoutCancel(w.ctx))
	kinds := w.watched
	w.watched = nil
	clear(w.history)
	clear(w.excused)
	w.mu.Unlock()
	for _, k := range kinds {
		if err := w.follow(k); err != nil {
			return err
		}
	}
	return nil
}
