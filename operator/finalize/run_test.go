package finalize

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

const patience = time.Minute

func TestOfFinalizersOfOneNameThoseThatAreDeletedLeaveTheirObjects(t *testing.T) {
	type in struct {
		name, entry string
		removed     bool
	}
	for name, c := range map[string]struct {
		in           []in
		served, left []string // shared ones with a star
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
				list = append(list, &policies.Finalizer{Policy: &policies.Policy{Name: i.name}, UID: types.UID(i.name), Entry: i.entry, Removed: i.removed})
			}
			serve, left := heirs(list)
			var served, gone []string
			for _, s := range serve {
				served = append(served, s.Name+map[bool]string{true: "*"}[s.shared])
			}
			for uid := range left {
				gone = append(gone, string(uid))
			}
			slices.Sort(gone)
			if diff := cmp.Diff([][]string{c.served, c.left}, [][]string{served, gone}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAttachingThatFailsIsToldOnceAndTriedLessAndLess(t *testing.T) {
	w := newWorld(t, func(f *policies.Finalizer) { f.Attach = true })
	o := w.api.create(object("ConfigMap", "ns", "o"))
	w.api.on(http.MethodPatch, refused)
	for i, want := range []time.Duration{5, 10, 20, 40} {
		w.after(w.visit(o), want*time.Second)
		if n := w.told(); (n.Reason == Attached && n.Err != nil) != (i == 0) {
			t.Errorf("told the %d. time: %+v", i+1, n)
		}
	}
	w.api.on(http.MethodGet, oops)
	w.after(w.visit(o), 80*time.Second)
	if p := w.server.progress(); p.Pending != 0 {
		t.Errorf("an object that is not being deleted is waited for: %+v", p)
	}
	w.api.mend()
	w.after(w.visit(o), 0)
	w.keeps(o)
	if n := w.told(); n.Reason != Attached || n.Err != nil {
		t.Errorf("told: %+v", n)
	}
	w.visit(o)
	if n := w.told(); n.Reason != "" {
		t.Errorf("told again: %+v", n)
	}
}

func TestALookFindsOutWhatNoEventTold(t *testing.T) {
	w := newWorld(t)
	w.module.says(waits)
	gone := w.waiting()
	w.visit(gone)
	w.api.remove(gone)
	late := object("ConfigMap", "ns", "late", entry)
	late.SetDeletionTimestamp(&metav1.Time{Time: start})
	w.api.create(late)
	if _, err := w.server.lookAtAll(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	for w.server.queue.Len() > 0 {
		w.server.next(t.Context())
	}
	if p := w.server.progress(); p.Pending != 1 || !w.server.waits(late.GetUID()) {
		t.Errorf("progress: %+v", p)
	}
	for thorough, want := range map[bool]int{false: 0, true: 1} { // of what is known already
		if _, err := w.server.lookAtAll(t.Context(), thorough); err != nil || w.server.queue.Len() != want {
			t.Errorf("thorough: %t: %d are looked at, %v", thorough, w.server.queue.Len(), err)
		}
		for w.server.queue.Len() > 0 {
			w.server.next(t.Context())
		}
	}
}

func TestALookThatFailsForOneResourceLooksAtTheOthers(t *testing.T) {
	w := newWorld(t)
	w.deleted("Role", entry)
	w.api.mu.Lock()
	w.api.otherwise = func(r *http.Request) http.HandlerFunc {
		if r.URL.Path == "/api/v1/configmaps" {
			return refused
		}
		return nil
	}
	w.api.mu.Unlock()
	if _, err := w.server.lookAtAll(t.Context(), false); err == nil {
		t.Error("no error")
	}
	if p := w.server.progress(); p.Pending != 1 || p.Counted {
		t.Errorf("progress: %+v", p)
	}
}

func TestOfARemovedFinalizerThatWasAttachedLatecomersAreCounted(t *testing.T) {
	for attach, want := range map[bool]bool{true: false, false: true} {
		w := newWorld(t)
		w.restart(w.finalizer(func(f *policies.Finalizer) { f.Removed, f.Attach = true, attach }))
		count := func() Progress {
			if _, err := w.server.lookAtAll(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			return w.server.progress()
		}
		if p := count(); p.Counted != want {
			t.Errorf("attach: %t, at once: %+v", attach, p)
		}
		w.pass(lookRemoved)
		if p := count(); !p.Counted {
			t.Errorf("attach: %t, after a while: %+v", attach, p)
		}
	}
}

func TestTheLongestStuckComeFirst(t *testing.T) {
	w := newWorld(t)
	w.module.says(gaveUp)
	for _, name := range []string{"c", "a", "b"} {
		o := object("ConfigMap", "ns", name, entry)
		o.SetDeletionTimestamp(&metav1.Time{Time: start})
		w.visit(w.api.create(o))
		if name == "c" {
			w.pass(time.Second)
		}
	}
	var got []string
	for _, s := range w.server.progress().Stuck {
		got = append(got, s.Object.Name)
	}
	if diff := cmp.Diff([]string{"c", "a", "b"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestWhoDoesNotLeadLooksAtNothingAndForgetsNothing(t *testing.T) {
	w := newWorld(t)
	o := w.waiting()
	w.leads = false
	w.server.await(keyOf(graph.ObjectOf(o.GroupVersionKind(), o)))
	w.server.next(t.Context())
	if n := w.api.asks(""); n != 0 {
		t.Errorf("%d requests", n)
	}
	if !w.server.waits(o.GetUID()) {
		t.Error("it is not waited for any more")
	}
}

func TestWhoLosesTheLeadMidwayWritesNothingMore(t *testing.T) {
	w := newWorld(t)
	o := w.waiting()
	w.module.say = func(hostabi.Request) (hostabi.Verdict, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.leads = false
		return isDone, nil
	}
	w.after(w.visit(o), lookAgain)
	w.keeps(o)
	if n := w.told(); n.Reason != "" {
		t.Errorf("told: %+v", n)
	}
}

func TestWhatIsCutOffIsNoFailure(t *testing.T) {
	w := newWorld(t)
	o := w.waiting()
	k := keyOf(graph.ObjectOf(o.GroupVersionKind(), o))
	w.server.tracked(k)
	ctx, cancel := context.WithCancel(t.Context())
	w.api.on(http.MethodGet, func(rw http.ResponseWriter, r *http.Request) {
		cancel()
		oops(rw, r)
	})
	w.server.visit(ctx, k)
	if n := w.told(); n.Reason != "" {
		t.Errorf("told: %+v", n)
	}
	if p := w.server.progress(); len(p.Stuck) != 0 {
		t.Errorf("progress: %+v", p)
	}
}

// running is a Runner at work on what w's API server has.
func running(t *testing.T, w *world, list func() []*policies.Finalizer) (end func()) {
	w.runner.Finalizers = func() ([]*policies.Finalizer, bool) { return list(), true }
	w.runner.servers = map[types.UID]*server{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.runner.Run(ctx) }()
	w.runner.Poke()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func seen(o *unstructured.Unstructured) graph.Event {
	return graph.Seen{Object: graph.ObjectOf(o.GroupVersionKind(), o)}
}

func pending(w *world, uid types.UID, want int) {
	w.Helper()
	devtest.Eventually(w, patience, func() error {
		if p := w.runner.Progress(uid); p.Pending != want {
			return fmt.Errorf("progress: %+v", p)
		}
		return nil
	})
}

func TestARelistHasThoseForgottenThatAreNotListed(t *testing.T) {
	w := newWorld(t)
	w.module.says(waits)
	o := w.waiting()
	f := w.finalizer()
	defer running(t, w, func() []*policies.Finalizer { return []*policies.Finalizer{f} })()
	pending(w, f.UID, 1)
	w.api.remove(o)
	w.runner.Apply(graph.Relisted{Kind: schema.GroupKind{Kind: "ConfigMap"}})
	pending(w, f.UID, 0)
}

func TestACircleThatIsBrokenInAnyOfItsFinalizersIsServed(t *testing.T) {
	w := newWorld(t)
	a := w.finalizer(func(f *policies.Finalizer) { f.After = []string{"example.com/b"} })
	b := w.finalizer(func(f *policies.Finalizer) { f.UID, f.Entry, f.After = "b", "example.com/b", []string{entry} })
	mended := *b
	policy := *b.Policy
	policy.Generation++
	mended.Policy, mended.After = &policy, nil
	var list atomic.Pointer[[]*policies.Finalizer]
	list.Store(&[]*policies.Finalizer{a, b})
	w.module.says(waits)
	w.deleted("ConfigMap", entry, "example.com/b")
	defer running(t, w, func() []*policies.Finalizer { return *list.Load() })()
	stuck := func(want int) {
		t.Helper()
		devtest.Eventually(t, patience, func() error {
			if p := w.runner.Progress(a.UID); p.Pending != 1 || len(p.Stuck) != want {
				return fmt.Errorf("progress: %+v", p)
			}
			return nil
		})
	}
	stuck(1)
	list.Store(&[]*policies.Finalizer{a, &mended})
	w.runner.Poke()
	stuck(0)
}

func TestADuplicateThatIsDeletedNeedNotWait(t *testing.T) {
	w := newWorld(t)
	a := w.finalizer()
	b := w.finalizer(func(f *policies.Finalizer) { f.UID, f.Removed, f.FreeAtRemoval = "b", true, true })
	w.module.says(waits)
	o := w.waiting()
	defer running(t, w, func() []*policies.Finalizer { return []*policies.Finalizer{a, b} })()
	pending(w, a.UID, 1)
	devtest.Eventually(t, patience, func() error {
		if p := w.runner.Progress(b.UID); !p.Counted || p.Carriers != 0 {
			return fmt.Errorf("progress: %+v", p)
		}
		return nil
	})
	w.keeps(o)
}

// The lead comes and goes, objects come and are deleted, finalizers change: in the end
// all objects are let go, and no goroutine is left.
func TestHammerOfARunner(t *testing.T) {
	w := newWorld(t)
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
	end := running(t, w, list)
	const objects = 200
	for i := range objects {
		o := object("ConfigMap", "ns", fmt.Sprintf("o-%d", i), entry)
		o.SetDeletionTimestamp(&metav1.Time{Time: start})
		o = w.api.create(o)
		w.runner.Apply(seen(o))
		if i%7 == 0 {
			w.mu.Lock()
			w.leads = !w.leads
			w.mu.Unlock()
		}
		if i%11 == 0 {
			generation.Add(1)
		}
		if i%31 == 0 {
			entries.Store(!entries.Load())
		}
		w.runner.Poke()
		w.runner.All()
	}
	w.mu.Lock()
	w.leads = true
	w.mu.Unlock()
	entries.Store(false)
	generation.Add(1)
	w.runner.Poke()
	devtest.Eventually(t, patience, func() error {
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
