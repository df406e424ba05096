package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

const (
	// patience is generous: refused writes wait for up to a minute, and what
	// orphans waits for the types that other tests have broken.
	patience = 150 * time.Second

	hold = "test.gleaner.dev/hold"

	background = metav1.DeletePropagationBackground
	foreground = metav1.DeletePropagationForeground
	orphan     = metav1.DeletePropagationOrphan
)

func eventually(t testing.TB, ask func() error) {
	t.Helper()
	devtest.Eventually(t, patience, ask)
}

// pause keeps what tries again from doing it all the time.
func pause(ctx context.Context) {
	timer := time.NewTimer(100 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// kind is a type of object.
type kind struct {
	resource   schema.GroupVersionResource
	kind       string
	namespaced bool
}

var configMap = &kind{resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, kind: "ConfigMap", namespaced: true}

func (k *kind) gvk() schema.GroupVersionKind { return k.resource.GroupVersion().WithKind(k.kind) }

// world is a namespace of a test's own, its clients, which reach the API
// server without a fault, and its witness.
type world struct {
	*testing.T
	*stage
	objects dynamic.Interface
	witness *witness
	ns      string
	defined []string // custom types, to be taken away again
}

// newWorld gives a test a namespace on the shared stage. The test runs beside
// others.
func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return worldOn(t, sharedStage(t))
}

// worldOn is newWorld on any stage. When the test is over, the witness speaks.
func worldOn(t *testing.T, s *stage) *world {
	t.Helper()
	w := &world{T: t, stage: s, objects: dynamic.NewForConfigOrDie(s.admin), ns: devtest.Namespace(t, s.admin)}
	w.witness = newWitness(context.WithoutCancel(t.Context()), w.objects, w.ns)
	w.follow(configMap)
	t.Cleanup(w.over)
	return w
}

// over hears the witness, and lets go whatever the test has left.
func (w *world) over() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), patience)
	defer cancel()
	if !w.Failed() {
		eventually(w, func() error { return w.witness.caughtUp(ctx) })
	}
	w.witness.stop()
	w.witness.running.Wait()
	for _, wrong := range w.witness.judge() {
		w.Errorf("%s", wrong)
	}
	for _, o := range w.witness.survivors() {
		client := w.client(o)
		_, _ = client.Patch(ctx, o.GetName(), types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null,"ownerReferences":null}}`), metav1.PatchOptions{})
		if o.GetNamespace() == "" {
			_ = client.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
		}
	}
	for _, name := range w.defined {
		_ = w.definitions().ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, name, metav1.DeleteOptions{})
	}
}

// follow has the witness watch a type.
func (w *world) follow(k *kind) {
	w.Helper()
	eventually(w, func() error { return w.witness.follow(k) })
}

// client reaches the objects of an object's type, in its namespace.
func (w *world) client(o *unstructured.Unstructured) dynamic.ResourceInterface {
	w.witness.mu.Lock()
	k := w.witness.kinds[o.GroupVersionKind()]
	w.witness.mu.Unlock()
	return w.objects.Resource(k.resource).Namespace(o.GetNamespace())
}

// thing is an object to be made: a ConfigMap unless it says otherwise.
type thing struct {
	name       string
	owners     []metav1.OwnerReference
	finalizers []string
	kind       *kind
}

// make creates an object.
func (w *world) make(th thing) *unstructured.Unstructured {
	w.Helper()
	made, err := w.tryMake(th)
	if err != nil {
		w.Fatal(err)
	}
	return made
}

func (w *world) tryMake(th thing) (*unstructured.Unstructured, error) {
	if th.kind == nil {
		th.kind = configMap
	}
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(th.kind.gvk())
	o.SetName(th.name)
	o.SetOwnerReferences(th.owners)
	o.SetFinalizers(th.finalizers)
	return w.witness.client(th.kind).Create(w.Context(), o, metav1.CreateOptions{})
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

// delete deletes an object with a propagation policy.
func (w *world) delete(o *unstructured.Unstructured, policy metav1.DeletionPropagation) {
	w.Helper()
	w.witness.excuse(o.GetUID())
	if err := w.client(o).Delete(w.Context(), o.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		w.Fatal(err)
	}
}

// get reads an object; nil if it does not exist any more.
func (w *world) get(o *unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	live, err := w.client(o).Get(w.Context(), o.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && live.GetUID() != o.GetUID():
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
		eventually(w, func() error {
			if live := w.get(o); live != nil {
				return fmt.Errorf("%s %s is still there: finalizers %v, owners %v; decided: %v", o.GetKind(), o.GetName(),
					live.GetFinalizers(), live.GetOwnerReferences(), w.decided(o))
			}
			return nil
		})
	}
}

// stays makes sure that objects are there, and not on their way out, once the
// collector has taken in all that happened before.
func (w *world) stays(objects ...*unstructured.Unstructured) {
	w.Helper()
	w.calm()
	for _, o := range objects {
		live := w.get(o)
		if live == nil {
			w.Fatalf("%s %s is gone; decided: %v", o.GetKind(), o.GetName(), w.decided(o))
		}
		if ending(live) {
			w.Fatalf("%s %s is being deleted; decided: %v", o.GetKind(), o.GetName(), w.decided(o))
		}
	}
}

// calm waits until the collector has worked on the namespace's objects of
// before. They come to their turn in order, so a pair that is made and
// collected shows it; the second shows that the workers are done with those
// which they had in hand.
func (w *world) calm() {
	w.Helper()
	for range 2 {
		owner := w.make(thing{name: "calm-owner-" + rand.String(5)})
		dependent := w.make(thing{name: "calm-" + rand.String(5), owners: owns(owner)})
		w.delete(owner, background)
		w.goes(dependent)
	}
}

// decided tells what the collector said last of an object, if it runs in here.
func (w *world) decided(o *unstructured.Unstructured) string {
	if w.collector == nil {
		return "unknown"
	}
	var said []string
	for _, e := range w.collector.Records(o.GetUID()) {
		said = append(said, fmt.Sprintf("%s %s: %s %s", e.Action, e.Result, e.String(), e.Error))
	}
	return strings.Join(said[max(0, len(said)-3):], "; ")
}

// holds waits until the collector holds an object, for this reason.
func (w *world) holds(o *unstructured.Unstructured, reason string) {
	w.Helper()
	eventually(w, func() error {
		for _, e := range w.collector.Records(o.GetUID()) {
			if string(e.Reason) == reason {
				return nil
			}
		}
		return fmt.Errorf("%s is not held as %s; decided: %s", o.GetName(), reason, w.decided(o))
	})
}

// seen waits until the collector's graph has objects.
func (w *world) seen(objects ...*unstructured.Unstructured) {
	w.Helper()
	for _, o := range objects {
		eventually(w, func() error {
			if !w.collector.HasUID(o.GetUID()) {
				return fmt.Errorf("%s is not in the graph", o.GetName())
			}
			return nil
		})
	}
}

// ends waits until an object is on its way out.
func (w *world) ends(o *unstructured.Unstructured) {
	w.Helper()
	eventually(w, func() error {
		if live := w.get(o); live != nil && !ending(live) {
			return fmt.Errorf("%s is not being deleted; decided: %s", o.GetName(), w.decided(o))
		}
		return nil
	})
}

// patch applies a merge patch to an object's metadata.
func (w *world) patch(o *unstructured.Unstructured, metadata map[string]any) {
	w.Helper()
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		w.Fatal(err)
	}
	patched, err := w.client(o).Patch(w.Context(), o.GetName(), types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.witness.wrote(patched)
}

// frees takes all finalizers off an object.
func (w *world) frees(o *unstructured.Unstructured) {
	w.Helper()
	w.patch(o, map[string]any{"finalizers": nil})
}

// ownedBy waits until an object has just these owners.
func (w *world) ownedBy(o *unstructured.Unstructured, names ...string) {
	w.Helper()
	eventually(w, func() error {
		live := w.get(o)
		if live == nil {
			w.Fatalf("%s is gone; decided: %s", o.GetName(), w.decided(o))
		}
		var got []string
		for _, ref := range live.GetOwnerReferences() {
			got = append(got, ref.Name)
		}
		if strings.Join(got, ",") != strings.Join(names, ",") {
			return fmt.Errorf("%s is owned by %v, want %v; decided: %s", o.GetName(), got, names, w.decided(o))
		}
		return nil
	})
}
