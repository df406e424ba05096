package gather_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/gather"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// ownerAndDependents is a graph of dependents of one owner with the given knowledge.
func ownerAndDependents(n int, known graph.OwnerState) fixedGraph {
	g := fixedGraph{}
	for i := range n {
		v := owned("ns", configMap, known)
		uid := fmt.Sprintf("child-%d", i)
		v.ID, v.Object = id(uid), child(uid, "ns", reference(configMap))
		g[v.ID] = v
	}
	return g
}

// A waiting owner is read once for a batch of its dependents, and again for the next batch:
// a second DELETE may have changed its propagation policy.
func TestReader_ReadsAWaitingOwnerOncePerTTL(t *testing.T) {
	w := newFixture(t, ownerAndDependents(4, graph.Foreground), noOwner)
	w.api.answer(mapPath, cachedRead(meta("ns", "owner", "owner", "foregroundDeletion")))
	batch := func(pass time.Duration, uids ...string) (statuses []decide.OwnerStatus, requests int) {
		w.clock.advance(pass)
		for _, uid := range uids {
			statuses = append(statuses, one(t, w, uid).Status)
		}
		return statuses, len(w.api.requests())
	}
	const waiting, orphaning = decide.Waiting, decide.Orphaning
	for _, c := range []struct {
		name     string
		pass     time.Duration
		uids     []string
		want     []decide.OwnerStatus
		requests int
	}{
		{"the first of its dependents asks", 0, []string{"child-0", "child-1"}, []decide.OwnerStatus{waiting, waiting}, 1},
		{"the next ones share its answer", time.Second - 1, []string{"child-2"}, []decide.OwnerStatus{waiting}, 0},
		{"until it is a second old", 1, []string{"child-3", "child-0"}, []decide.OwnerStatus{orphaning, orphaning}, 1},
	} {
		statuses, requests := batch(c.pass, c.uids...)
		if diff := cmp.Diff(c.want, statuses); diff != "" || requests != c.requests {
			t.Errorf("%s: asked %d times, want %d\n%s", c.name, requests, c.requests, diff)
		}
		w.api.answer(mapPath, cachedRead(meta("ns", "owner", "owner", "orphan")))
	}
}

// The age of a cached result counts from the request, not from the response.
func TestReader_CacheAgeStartsWithTheRequest(t *testing.T) {
	w := newFixture(t, ownerAndDependents(2, graph.Foreground), noOwner)
	waits := cachedRead(meta("ns", "owner", "owner", "foregroundDeletion"))
	w.api.answer(mapPath, func(rw http.ResponseWriter, r *http.Request) {
		w.clock.advance(5 * time.Second)
		waits(rw, r)
	})
	one(t, w, "child-0")
	w.api.requests()
	one(t, w, "child-1")
	if requests := w.api.requests(); len(requests) != 1 {
		t.Errorf("a result older than the TTL was reused: requests %v", requests)
	}
}

// An error is cached for a second, too, so that the dependents of an owner that cannot be
// read do not all read it. Then the next one retries.
func TestReader_CachesErrorsForASecond(t *testing.T) {
	w := newFixture(t, ownerAndDependents(2, graph.Unseen), noOwner)
	w.api.answer(mapPath, body(http.StatusInternalServerError, "text/plain", "oops"))
	first := one(t, w, "child-0")
	w.api.answer(mapPath, cachedRead(meta("ns", "owner", "owner")))
	second := one(t, w, "child-1")
	w.clock.advance(time.Second)
	third := one(t, w, "child-1")
	if diff := cmp.Diff([]decide.OwnerStatus{decide.Unknown, decide.Unknown, decide.Present}, []decide.OwnerStatus{first.Status, second.Status, third.Status}); diff != "" {
		t.Error(diff)
	}
}

// The result of one claim does not apply to another, similar one.
func TestReader_OnlyEqualClaimsShareARead(t *testing.T) {
	g := fixedGraph{}
	for i, ref := range []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner"},
		{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "another"},
		{APIVersion: "v1", Kind: "Pod", Name: "owner", UID: "owner"},
	} {
		uid := fmt.Sprint(i)
		object := child(uid, "ns", ref)
		g[id(uid)] = graph.View{ID: id(uid), Object: object, Claims: []graph.Claim{{Reference: ref}}}
	}
	w := newFixture(t, g, noOwner)
	w.api.answer(mapPath, cachedRead(meta("ns", "owner", "owner")))
	var got []decide.OwnerStatus
	for _, uid := range []string{"0", "1", "2"} {
		got = append(got, one(t, w, uid).Status)
	}
	if diff := cmp.Diff([]decide.OwnerStatus{decide.Present, decide.Absent, decide.Absent}, got); diff != "" {
		t.Error(diff)
	}
}

// slow is a client whose reads wait for release.
type slow struct {
	metadata.Interface
	metadata.Getter
	release chan struct{}
	named   bool // responds with the requested name

	mu    sync.Mutex // covers reads
	reads int
}

// begun returns the number of reads that were started.
func (s *slow) begun() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

func (s *slow) Resource(schema.GroupVersionResource) metadata.Getter { return s }
func (s *slow) Namespace(string) metadata.ResourceInterface          { return s }

func (s *slow) Get(ctx context.Context, name string, _ metav1.GetOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	s.mu.Lock()
	s.reads++
	s.mu.Unlock()
	select {
	case <-s.release:
		if s.named {
			return meta("ns", name, "another"), nil
		}
		return meta("ns", "owner", "owner", "foregroundDeletion"), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestReader_ConcurrentDependentsShareARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 50
		client := &slow{release: make(chan struct{})}
		g := gather.Gatherer{
			Graph: ownerAndDependents(many, graph.Foreground), Catalog: served, Now: time.Now, Observe: noOwner,
			Reader: gather.NewReader(client, func(context.Context, schema.GroupVersionResource) (bool, error) { return true, nil }, time.Now),
		}
		statuses := make([]decide.OwnerStatus, many)
		var all sync.WaitGroup
		for i := range many {
			all.Go(func() {
				facts, _ := g.Gather(t.Context(), id(fmt.Sprintf("child-%d", i)))
				statuses[i] = facts.Owners[0].Status
			})
		}
		synctest.Wait() // all of them wait for the one read
		close(client.release)
		all.Wait()
		if diff := cmp.Diff(slices.Repeat([]decide.OwnerStatus{decide.Waiting}, many), statuses); diff != "" || client.reads != 1 {
			t.Errorf("%d reads\n%s", client.reads, diff)
		}
	})
}

// An object with the same name but another UID or group is a different object.
func TestReader_OnlyEqualClaimsShareAReadInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refs := []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "another"},
			{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner"},
			{APIVersion: "example.com/v1", Kind: "Widget", Name: "owner", UID: "owner"},
		}
		views := fixedGraph{}
		for i, ref := range refs {
			uid := fmt.Sprint(i)
			views[id(uid)] = graph.View{ID: id(uid), Object: child(uid, "ns", ref), Claims: []graph.Claim{{Reference: ref}}}
		}
		client := &slow{release: make(chan struct{})}
		g := gather.Gatherer{
			Graph: views, Catalog: served, Now: time.Now, Observe: noOwner,
			Reader: gather.NewReader(client, func(context.Context, schema.GroupVersionResource) (bool, error) { return true, nil }, time.Now),
		}
		got := make([]decide.OwnerStatus, len(refs))
		var all sync.WaitGroup
		for i := range refs {
			all.Go(func() {
				facts, _ := g.Gather(t.Context(), id(fmt.Sprint(i)))
				got[i] = facts.Owners[0].Status
			})
			synctest.Wait() // it asks, or waits for who does
		}
		close(client.release)
		all.Wait()
		if diff := cmp.Diff([]decide.OwnerStatus{decide.Absent, decide.Waiting, decide.Waiting}, got); diff != "" || client.reads != len(refs) {
			t.Errorf("%d reads\n%s", client.reads, diff)
		}
	})
}

// A canceled caller gets an error immediately. Other callers are not affected.
func TestReader_CanceledCallerDoesNotCancelOthers(t *testing.T) {
	for claim, gives := range map[string]int{"who asked first": 0, "who joined": 1} {
		t.Run(claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := &slow{release: make(chan struct{})}
				g := gather.Gatherer{
					Graph: ownerAndDependents(2, graph.Foreground), Catalog: served, Now: time.Now, Observe: noOwner,
					Reader: gather.NewReader(client, func(context.Context, schema.GroupVersionResource) (bool, error) { return true, nil }, time.Now),
				}
				statuses := make([]decide.OwnerStatus, 2)
				var ends [2]time.Duration
				var all sync.WaitGroup
				started := time.Now()
				for i := range 2 {
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if i == gives {
						ctx, cancel = context.WithTimeout(ctx, 900*time.Millisecond)
					}
					all.Go(func() {
						defer cancel()
						facts, _ := g.Gather(ctx, id(fmt.Sprintf("child-%d", i)))
						statuses[i], ends[i] = facts.Owners[0].Status, time.Since(started)
					})
					synctest.Wait()
				}
				time.Sleep(2 * time.Second) // of the test's own clock
				close(client.release)
				all.Wait()
				if statuses[gives] != decide.Unknown || ends[gives] != 900*time.Millisecond {
					t.Errorf("who gave up: owner is %s, after %s", statuses[gives], ends[gives])
				}
				if other := 1 - gives; statuses[other] != decide.Waiting || ends[other] != 2*time.Second {
					t.Errorf("the other: owner is %s, after %s", statuses[other], ends[other])
				}
			})
		})
	}
}

// Concurrent workers, for the race detector.
func TestGather_ConcurrentUse(t *testing.T) {
	g := &locked{g: graph.New()}
	w := newFixture(t, g, g.apply)
	w.api.answer(mapPath, cachedRead(meta("ns", "owner", "owner", "foregroundDeletion")))
	var all sync.WaitGroup
	for i := range 16 {
		uid := fmt.Sprint("child-", i)
		g.apply(graph.Seen{Object: child(uid, "ns", reference(configMap), reference(widget))})
		all.Go(func() {
			for range 20 {
				w.clock.advance(100 * time.Millisecond)
				w.Gather(t.Context(), id(uid))
				w.Barrier.Request(id(uid))
				w.Barrier.RunRound(t.Context())
				w.Barrier.Outcome(id(uid), false)
			}
		})
	}
	all.Wait()
}
