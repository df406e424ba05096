package finalizers

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
)

const timeout = time.Minute

func TestResolveDuplicates_PrefersResourcesInForce(t *testing.T) {
	type in struct {
		name, entry string
		removed     bool
	}
	for name, c := range map[string]struct {
		in                 []in
		served, superseded []string // a star marks shared ones
	}{
		"one":                  {[]in{{"a", "x", false}}, []string{"a"}, nil},
		"one that is deleted":  {[]in{{"a", "x", true}}, []string{"a"}, nil},
		"two of another name":  {[]in{{"a", "x", true}, {"b", "y", false}}, []string{"a", "b"}, nil},
		"two":                  {[]in{{"a", "x", false}, {"b", "x", false}}, []string{"a*", "b*"}, nil},
		"the first is deleted": {[]in{{"a", "x", true}, {"b", "x", false}}, []string{"b*"}, []string{"a"}},
		"both are deleted":     {[]in{{"b", "x", true}, {"a", "x", true}}, []string{"a*"}, []string{"b"}},
		"two of three":         {[]in{{"a", "x", true}, {"b", "x", false}, {"c", "x", true}}, []string{"b*"}, []string{"a", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			var list []*policies.Finalizer
			for _, i := range c.in {
				list = append(list, &policies.Finalizer{Policy: &policies.Policy{Name: i.name}, UID: types.UID(i.name), Entry: i.entry, Deleting: i.removed})
			}
			serve, superseded := resolveDuplicates(list)
			var served, gone []string
			for _, s := range serve {
				served = append(served, s.Name+map[bool]string{true: "*"}[s.shared])
			}
			for uid := range superseded {
				gone = append(gone, string(uid))
			}
			slices.Sort(gone)
			if diff := cmp.Diff([][]string{c.served, c.superseded}, [][]string{served, gone}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAttach_FailureIsRecordedOnceAndBacksOff(t *testing.T) {
	w := newTestEnv(t, func(f *policies.Finalizer) { f.Attach = true })
	o := w.api.create(newObject("ConfigMap", "ns", "o"))
	w.api.overrideMethod(http.MethodPatch, forbidden)
	for i, want := range []time.Duration{5, 10, 20, 40} {
		w.wantDelay(w.reconcile(o), want*time.Second)
		if n := w.lastOutcome(); (n.Reason == Attached && n.Err != nil) != (i == 0) {
			t.Errorf("recorded after attempt %d: %+v", i+1, n)
		}
	}
	w.api.overrideMethod(http.MethodGet, internalError)
	w.wantDelay(w.reconcile(o), 80*time.Second)
	if p := w.controller.progress(); p.Pending != 0 {
		t.Errorf("an object that is not being deleted is pending: %+v", p)
	}
	w.api.clearOverride()
	w.wantDelay(w.reconcile(o), 0)
	w.wantFinalizer(o)
	if n := w.lastOutcome(); n.Reason != Attached || n.Err != nil {
		t.Errorf("outcome: %+v", n)
	}
	w.reconcile(o)
	if n := w.lastOutcome(); n.Reason != "" {
		t.Errorf("recorded again: %+v", n)
	}
}

func TestResync_FindsMissedChanges(t *testing.T) {
	w := newTestEnv(t)
	w.module.returns(waitVerdict)
	gone := w.createPending()
	w.reconcile(gone)
	w.api.remove(gone)
	late := newObject("ConfigMap", "ns", "late", entry)
	late.SetDeletionTimestamp(&metav1.Time{Time: start})
	w.api.create(late)
	if _, err := w.controller.resync(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	for w.controller.queue.Len() > 0 {
		w.controller.processNext(t.Context())
	}
	if p := w.controller.progress(); p.Pending != 1 || !w.controller.isPending(late.GetUID()) {
		t.Errorf("progress: %+v", p)
	}
	for thorough, want := range map[bool]int{false: 0, true: 1} { // objects that are tracked already
		if _, err := w.controller.resync(t.Context(), thorough); err != nil || w.controller.queue.Len() != want {
			t.Errorf("thorough: %t: %d objects enqueued, %v", thorough, w.controller.queue.Len(), err)
		}
		for w.controller.queue.Len() > 0 {
			w.controller.processNext(t.Context())
		}
	}
}

func TestResync_ListsOtherResourcesAfterAnError(t *testing.T) {
	w := newTestEnv(t)
	w.createDeleted("Role", entry)
	w.api.mu.Lock()
	w.api.override = func(r *http.Request) http.HandlerFunc {
		if r.URL.Path == "/api/v1/configmaps" {
			return forbidden
		}
		return nil
	}
	w.api.mu.Unlock()
	if _, err := w.controller.resync(t.Context(), false); err == nil {
		t.Error("no error")
	}
	if p := w.controller.progress(); p.Pending != 1 || p.Counted {
		t.Errorf("progress: %+v", p)
	}
}

func TestRemovedFinalizer_CountsLateObjectsIfAttached(t *testing.T) {
	for attach, want := range map[bool]bool{true: false, false: true} {
		w := newTestEnv(t)
		w.restart(w.finalizer(func(f *policies.Finalizer) { f.Deleting, f.Attach = true, attach }))
		count := func() Progress {
			if _, err := w.controller.resync(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			return w.controller.progress()
		}
		if p := count(); p.Counted != want {
			t.Errorf("attach: %t, at once: %+v", attach, p)
		}
		w.advance(minRecountInterval)
		if p := count(); !p.Counted {
			t.Errorf("attach: %t, after a while: %+v", attach, p)
		}
	}
}

func TestProgress_SortsStuckObjectsByAge(t *testing.T) {
	w := newTestEnv(t)
	w.module.returns(failVerdict)
	for _, name := range []string{"c", "a", "b"} {
		o := newObject("ConfigMap", "ns", name, entry)
		o.SetDeletionTimestamp(&metav1.Time{Time: start})
		w.reconcile(w.api.create(o))
		if name == "c" {
			w.advance(time.Second)
		}
	}
	var got []string
	for _, s := range w.controller.progress().Stuck {
		got = append(got, s.Object.Name)
	}
	if diff := cmp.Diff([]string{"c", "a", "b"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestNonLeader_ReadsNothingAndForgetsNothing(t *testing.T) {
	w := newTestEnv(t)
	o := w.createPending()
	w.gate.Follow()
	w.controller.enqueuePending(graph.ObjectOf(o.GroupVersionKind(), o))
	w.controller.processNext(t.Context())
	if n := w.api.countRequests(""); n != 0 {
		t.Errorf("%d requests", n)
	}
	if !w.controller.isPending(o.GetUID()) {
		t.Error("it is no longer pending")
	}
}

func TestLostLeadership_StopsWrites(t *testing.T) {
	w := newTestEnv(t)
	o := w.createPending()
	w.module.respond = func(hostabi.Request) (hostabi.Verdict, error) {
		w.gate.Follow()
		return doneVerdict, nil
	}
	w.wantDelay(w.reconcile(o), minRetryDelay)
	w.wantFinalizer(o)
	if n := w.lastOutcome(); n.Reason != "" {
		t.Errorf("outcome: %+v", n)
	}
}

func TestInterruption_IsNotRecordedAsAFailure(t *testing.T) {
	w := newTestEnv(t)
	o := w.createPending()
	k := keyOf(graph.ObjectOf(o.GroupVersionKind(), o))
	w.controller.ensurePending(k)
	ctx, cancel := context.WithCancel(t.Context())
	w.api.overrideMethod(http.MethodGet, func(rw http.ResponseWriter, r *http.Request) {
		cancel()
		internalError(rw, r)
	})
	w.controller.reconcile(ctx, k)
	if n := w.lastOutcome(); n.Reason != "" {
		t.Errorf("outcome: %+v", n)
	}
	if p := w.controller.progress(); len(p.Stuck) != 0 {
		t.Errorf("progress: %+v", p)
	}
}

// startRunner runs a Runner on the objects of w's API server.
func startRunner(t *testing.T, w *testEnv, list func() []*policies.Finalizer) (end func()) {
	w.runner.Finalizers = func() ([]*policies.Finalizer, bool) { return list(), true }
	w.runner.controllers = map[types.UID]*controller{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.runner.Run(ctx) }()
	w.runner.Trigger()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func seenEvent(o *unstructured.Unstructured) graph.Event {
	return graph.Seen{Object: graph.ObjectOf(o.GroupVersionKind(), o)}
}

func eventuallyPending(w *testEnv, uid types.UID, want int) {
	w.Helper()
	devtest.Eventually(w, timeout, func() error {
		if p := w.runner.Progress(uid); p.Pending != want {
			return fmt.Errorf("progress: %+v", p)
		}
		return nil
	})
}

func TestRelist_RemovesUnlistedObjects(t *testing.T) {
	w := newTestEnv(t)
	w.module.returns(waitVerdict)
	o := w.createPending()
	f := w.finalizer()
	defer startRunner(t, w, func() []*policies.Finalizer { return []*policies.Finalizer{f} })()
	eventuallyPending(w, f.UID, 1)
	w.api.remove(o)
	w.runner.Apply(graph.Relisted{Kind: schema.GroupKind{Kind: "ConfigMap"}})
	eventuallyPending(w, f.UID, 0)
}

func TestCycle_IsResolvedByAnyOfItsFinalizers(t *testing.T) {
	w := newTestEnv(t)
	a := w.finalizer(func(f *policies.Finalizer) { f.After = []string{"example.com/b"} })
	b := w.finalizer(func(f *policies.Finalizer) { f.UID, f.Entry, f.After = "b", "example.com/b", []string{entry} })
	fixed := *b
	policy := *b.Policy
	policy.Generation++
	fixed.Policy, fixed.After = &policy, nil
	var list atomic.Pointer[[]*policies.Finalizer]
	list.Store(&[]*policies.Finalizer{a, b})
	w.module.returns(waitVerdict)
	w.createDeleted("ConfigMap", entry, "example.com/b")
	defer startRunner(t, w, func() []*policies.Finalizer { return *list.Load() })()
	stuck := func(want int) {
		t.Helper()
		devtest.Eventually(t, timeout, func() error {
			if p := w.runner.Progress(a.UID); p.Pending != 1 || len(p.Stuck) != want {
				return fmt.Errorf("progress: %+v", p)
			}
			return nil
		})
	}
	stuck(1)
	list.Store(&[]*policies.Finalizer{a, &fixed})
	w.runner.Trigger()
	stuck(0)
}

func TestDuplicate_ThatIsDeletedDoesNotWait(t *testing.T) {
	w := newTestEnv(t)
	a := w.finalizer()
	b := w.finalizer(func(f *policies.Finalizer) { f.UID, f.Deleting, f.ReleaseOnRemoval = "b", true, true })
	w.module.returns(waitVerdict)
	o := w.createPending()
	defer startRunner(t, w, func() []*policies.Finalizer { return []*policies.Finalizer{a, b} })()
	eventuallyPending(w, a.UID, 1)
	devtest.Eventually(t, timeout, func() error {
		if p := w.runner.Progress(b.UID); !p.Counted || p.WithFinalizer != 0 {
			return fmt.Errorf("progress: %+v", p)
		}
		return nil
	})
	w.wantFinalizer(o)
}

// Leadership changes, objects are created and deleted, finalizers change: in the end all
// objects are released, and no goroutine is left.
func TestRunner_Hammer(t *testing.T) {
	w := newTestEnv(t)
	before := goleak.IgnoreCurrent()
	var generation atomic.Int64
	var entries atomic.Bool
	list := func() []*policies.Finalizer {
		return []*policies.Finalizer{w.finalizer(func(f *policies.Finalizer) {
			f.Generation = generation.Load()
			if entries.Load() {
				f.Entry = "example.com/another"
			}
		})}
	}
	end := startRunner(t, w, list)
	const objects = 200
	for i := range objects {
		o := newObject("ConfigMap", "ns", fmt.Sprintf("o-%d", i), entry)
		o.SetDeletionTimestamp(&metav1.Time{Time: start})
		o = w.api.create(o)
		w.runner.Apply(seenEvent(o))
		if i%7 == 0 {
			if w.gate.IsLeading() {
				w.gate.Follow()
			} else {
				w.gate.Lead()
			}
		}
		if i%11 == 0 {
			generation.Add(1)
		}
		if i%31 == 0 {
			entries.Store(!entries.Load())
		}
		w.runner.Trigger()
		w.runner.AllProgress()
	}
	w.gate.Lead()
	entries.Store(false)
	generation.Add(1)
	w.runner.Trigger()
	devtest.Eventually(t, timeout, func() error {
		w.api.mu.Lock()
		defer w.api.mu.Unlock()
		if n := len(w.api.objects); n != 2 { // the namespaces
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	end()
	w.api.CloseClientConnections()
	goleak.VerifyNone(t, before, goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"))
}
