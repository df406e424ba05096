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
	// timeout is generous: refused writes wait for up to a minute, and
	// orphaning owners wait for types that other tests have broken.
	timeout = 150 * time.Second

	testFinalizer = "test.gleaner.dev/hold"

	background = metav1.DeletePropagationBackground
	foreground = metav1.DeletePropagationForeground
	orphan     = metav1.DeletePropagationOrphan
)

func eventually(t testing.TB, ask func() error) {
	t.Helper()
	devtest.Eventually(t, timeout, ask)
}

// sleep limits the rate of retries.
func sleep(ctx context.Context) {
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

// env is one test's namespace, its clients, which do not use
// the proxy, and its auditor.
type env struct {
	*testing.T
	*testbed
	objects      dynamic.Interface
	auditor      *auditor
	ns           string
	definedTypes []string // custom types to remove
}

// newEnv creates a namespace in the shared environment. The test runs in
// parallel.
func newEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()
	return newEnvOn(t, sharedTestbed(t))
}

// newEnvOn is like newEnv, in any environment. At the end, the auditor checks the history.
func newEnvOn(t *testing.T, s *testbed) *env {
	t.Helper()
	w := &env{T: t, testbed: s, objects: dynamic.NewForConfigOrDie(s.admin), ns: devtest.Namespace(t, s.admin)}
	w.auditor = newAuditor(context.WithoutCancel(t.Context()), w.objects, w.ns)
	w.watchType(configMap)
	t.Cleanup(w.finish)
	return w
}

// finish reports violations that the auditor found, and releases the test's objects.
func (w *env) finish() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), timeout)
	defer cancel()
	if !w.Failed() {
		eventually(w, func() error { return w.auditor.checkCaughtUp(ctx) })
	}
	w.auditor.stop()
	w.auditor.running.Wait()
	for _, wrong := range w.auditor.violations() {
		w.Errorf("%s", wrong)
	}
	for _, o := range w.auditor.existing() {
		client := w.client(o)
		_, _ = client.Patch(ctx, o.GetName(), types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null,"ownerReferences":null}}`), metav1.PatchOptions{})
		if o.GetNamespace() == "" {
			_ = client.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
		}
	}
	for _, name := range w.definedTypes {
		_ = w.crdClient().ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, name, metav1.DeleteOptions{})
	}
}

// watchType makes the auditor watch a type.
func (w *env) watchType(k *kind) {
	w.Helper()
	eventually(w, func() error { return w.auditor.watchType(k) })
}

// client returns the client for an object's type and namespace.
func (w *env) client(o *unstructured.Unstructured) dynamic.ResourceInterface {
	w.auditor.mu.Lock()
	k := w.auditor.kinds[o.GroupVersionKind()]
	w.auditor.mu.Unlock()
	return w.objects.Resource(k.resource).Namespace(o.GetNamespace())
}

// objectSpec describes an object to create: by default a ConfigMap.
type objectSpec struct {
	name       string
	owners     []metav1.OwnerReference
	finalizers []string
	kind       *kind
}

// create creates an object.
func (w *env) create(th objectSpec) *unstructured.Unstructured {
	w.Helper()
	made, err := w.tryCreate(th)
	if err != nil {
		w.Fatal(err)
	}
	return made
}

func (w *env) tryCreate(th objectSpec) (*unstructured.Unstructured, error) {
	if th.kind == nil {
		th.kind = configMap
	}
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(th.kind.gvk())
	o.SetName(th.name)
	o.SetOwnerReferences(th.owners)
	o.SetFinalizers(th.finalizers)
	return w.auditor.client(th.kind).Create(w.Context(), o, metav1.CreateOptions{})
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

// delete deletes an object with a propagation policy.
func (w *env) delete(o *unstructured.Unstructured, policy metav1.DeletionPropagation) {
	w.Helper()
	w.auditor.allowDelete(o.GetUID())
	if err := w.client(o).Delete(w.Context(), o.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		w.Fatal(err)
	}
}

// get reads an object; nil if it does not exist.
func (w *env) get(o *unstructured.Unstructured) *unstructured.Unstructured {
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

// waitForDeletion waits until objects do not exist any more.
func (w *env) waitForDeletion(objects ...*unstructured.Unstructured) {
	w.Helper()
	for _, o := range objects {
		eventually(w, func() error {
			if live := w.get(o); live != nil {
				return fmt.Errorf("%s %s still exists: finalizers %v, owners %v; decided: %v", o.GetKind(), o.GetName(),
					live.GetFinalizers(), live.GetOwnerReferences(), w.describeDecisions(o))
			}
			return nil
		})
	}
}

// expectKept checks that objects exist and are not terminating, once the
// collector has processed all earlier events.
func (w *env) expectKept(objects ...*unstructured.Unstructured) {
	w.Helper()
	w.waitUntilIdle()
	for _, o := range objects {
		live := w.get(o)
		if live == nil {
			w.Fatalf("%s %s is gone; decided: %v", o.GetKind(), o.GetName(), w.describeDecisions(o))
		}
		if isTerminating(live) {
			w.Fatalf("%s %s is being deleted; decided: %v", o.GetKind(), o.GetName(), w.describeDecisions(o))
		}
	}
}

// waitUntilIdle waits until the collector has processed the namespace's earlier
// events. They are processed in order, so collecting a new pair of objects shows it; the second
// pair shows that the workers have finished the items that were
// in progress.
func (w *env) waitUntilIdle() {
	w.Helper()
	for range 2 {
		owner := w.create(objectSpec{name: "calm-owner-" + rand.String(5)})
		dependent := w.create(objectSpec{name: "calm-" + rand.String(5), owners: ownerRefs(owner)})
		w.delete(owner, background)
		w.waitForDeletion(dependent)
	}
}

// describeDecisions describes the latest decisions about an object, if the collector runs in this process.
func (w *env) describeDecisions(o *unstructured.Unstructured) string {
	if w.collector == nil {
		return "unknown"
	}
	var lines []string
	for _, e := range w.collector.Records(o.GetUID()) {
		lines = append(lines, fmt.Sprintf("%s %s: %s %s", e.Action, e.Result, e.String(), e.Error))
	}
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}

// waitForKept waits until the collector keeps an object for this reason.
func (w *env) waitForKept(o *unstructured.Unstructured, reason string) {
	w.Helper()
	eventually(w, func() error {
		for _, e := range w.collector.Records(o.GetUID()) {
			if string(e.Reason) == reason {
				return nil
			}
		}
		return fmt.Errorf("%s is not kept with reason %s; decided: %s", o.GetName(), reason, w.describeDecisions(o))
	})
}

// waitForGraph waits until objects are in the collector's graph.
func (w *env) waitForGraph(objects ...*unstructured.Unstructured) {
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

// waitForTerminating waits until an object is terminating.
func (w *env) waitForTerminating(o *unstructured.Unstructured) {
	w.Helper()
	eventually(w, func() error {
		if live := w.get(o); live != nil && !isTerminating(live) {
			return fmt.Errorf("%s is not being deleted; decided: %s", o.GetName(), w.describeDecisions(o))
		}
		return nil
	})
}

// patch applies a merge patch to an object's metadata.
func (w *env) patch(o *unstructured.Unstructured, metadata map[string]any) {
	w.Helper()
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		w.Fatal(err)
	}
	patched, err := w.client(o).Patch(w.Context(), o.GetName(), types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.auditor.recordWrite(patched)
}

// touch changes an object, unless it is deleted already.
func (w *env) touch(o *unstructured.Unstructured) {
	w.Helper()
	patched, err := w.client(o).Patch(w.Context(), o.GetName(), types.MergePatchType, []byte(`{"metadata":{"labels":{"touched":"yes"}}}`), metav1.PatchOptions{})
	switch {
	case err == nil:
		w.auditor.recordWrite(patched)
	case !apierrors.IsNotFound(err):
		w.Fatal(err)
	}
}

// removeFinalizers removes all finalizers from an object.
func (w *env) removeFinalizers(o *unstructured.Unstructured) {
	w.Helper()
	w.patch(o, map[string]any{"finalizers": nil})
}

// waitForOwners waits until an object has exactly these owners.
func (w *env) waitForOwners(o *unstructured.Unstructured, names ...string) {
	w.Helper()
	eventually(w, func() error {
		live := w.get(o)
		if live == nil {
			w.Fatalf("%s is gone; decided: %s", o.GetName(), w.describeDecisions(o))
		}
		var got []string
		for _, ref := range live.GetOwnerReferences() {
			got = append(got, ref.Name)
		}
		if strings.Join(got, ",") != strings.Join(names, ",") {
			return fmt.Errorf("%s is owned by %v, want %v; decided: %s", o.GetName(), got, names, w.describeDecisions(o))
		}
		return nil
	})
}
