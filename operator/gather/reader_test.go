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

// family is a graph of children that all name the one owner, of which this is
// known.
func family(n int, known graph.Knowledge) told {
	g := told{}
	for i := range n {
		v := owned("ns", configMap, known)
		uid := fmt.Sprintf("child-%d", i)
		v.ID, v.Object = id(uid), child(uid, "ns", reference(configMap))
		g[v.ID] = v
	}
	return g
}

// A waiting owner is read once for a batch of its dependents, and again for
// the next batch: by then a second DELETE may have told it otherwise.
func TestAWaitingOwnerIsReadOncePerBatch(t *testing.T) {
	w := newWorld(t, family(4, graph.Foreground), nobody)
	w.api.answer(mapPath, found(meta("ns", "owner", "owner", "foregroundDeletion")))
	batch := func(pass time.Duration, uids ...string) (standings []decide.Standing, asked int) {
		w.clock.pass(pass)
		for _, uid := range uids {
			standings = append(standings, one(t, w, uid).Standing)
		}
		return standings, len(w.api.asks())
	}
	const waiting, orphaning = decide.Waiting, decide.Orphaning
	for _, c := range []struct {
		name  string
		pass  time.Duration
		uids  []string
		want  []decide.Standing
		asked int
	}{
		{"the first of its dependents asks", 0, []string{"child-0", "child-1"}, []decide.Standing{waiting, waiting}, 1},
		{"the next ones share its answer", time.Second - 1, []string{"child-2"}, []decide.Standing{waiting}, 0},
		{"until it is a second old", 1, []string{"child-3", "child-0"}, []decide.Standing{orphaning, orphaning}, 1},
	} {
		standings, asked := batch(c.pass, c.uids...)
		if diff := cmp.Diff(c.want, standings); diff != "" || asked != c.asked {
			t.Errorf("%s: asked %d times, want %d\n%s", c.name, asked, c.asked, diff)
		}
		w.api.answer(mapPath, found(meta("ns", "owner", "owner", "orphan")))
	}
}

// What is believed for a second is as old as the request, not as the answer.
func TestAnAnswerIsAsOldAsItsRequest(t *testing.T) {
	w := newWorld(t, family(2, graph.Foreground), nobody)
	waits := found(meta("ns", "owner", "owner", "foregroundDeletion"))
	w.api.answer(mapPath, func(rw http.ResponseWriter, r *http.Request) {
		w.clock.pass(5 * time.Second)
		waits(rw, r)
	})
	one(t, w, "child-0")
	w.api.asks()
	one(t, w, "child-1")
	if asked := w.api.asks(); len(asked) != 1 {
		t.Errorf("an answer that took five seconds was believed for another: asked %v", asked)
	}
}

// A failure is shared for a second, too, so that the dependents of an owner
// that can't be read do not all ask at once. Then the next may have more luck.
func TestAFailedReadIsSharedForASecond(t *testing.T) {
	w := newWorld(t, family(2, graph.Unseen), nobody)
	w.api.answer(mapPath, body(http.StatusInternalServerError, "text/plain", "oops"))
	first := one(t, w, "child-0")
	w.api.answer(mapPath, found(meta("ns", "owner", "owner")))
	second := one(t, w, "child-1")
	w.clock.pass(time.Second)
	third := one(t, w, "child-1")
	if diff := cmp.Diff([]decide.Standing{decide.Unknown, decide.Unknown, decide.Present}, []decide.Standing{first.Standing, second.Standing, third.Standing}); diff != "" {
		t.Error(diff)
	}
}

// One claim's answer is not another's, however alike they look.
func TestOnlyEqualClaimsShareARead(t *testing.T) {
	g := told{}
	for i, ref := range []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner"},
		{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "another"},
		{APIVersion: "v1", Kind: "Pod", Name: "owner", UID: "owner"},
	} {
		uid := fmt.Sprint(i)
		object := child(uid, "ns", ref)
		g[id(uid)] = graph.View{ID: id(uid), Object: object, Claims: []graph.Claim{{Reference: ref}}}
	}
	w := newWorld(t, g, nobody)
	w.api.answer(mapPath, found(meta("ns", "owner", "owner")))
	var got []decide.Standing
	for _, uid := range []string{"0", "1", "2"} {
		got = append(got, one(t, w, uid).Standing)
	}
	if diff := cmp.Diff([]decide.Standing{decide.Present, decide.Absent, decide.Absent}, got); diff != "" {
		t.Error(diff)
	}
}

// slow is a client whose reads wait to be let go.
type slow struct {
	metadata.Interface
	metadata.Getter
	release chan struct{}
	named   bool // answers by the name that was asked for

	mu    sync.Mutex // covers reads
	reads int
}

// begun is how many reads were.
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

func TestDependentsThatAskAtTheSameTimeShareARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 50
		client := &slow{release: make(chan struct{})}
		g := gather.Gatherer{
			Graph: family(many, graph.Foreground), Catalog: served, Now: time.Now, Observe: nobody,
			Reader: gather.NewReader(client, func(context.Context, schema.GroupVersionResource) (bool, error) { return true, nil }, time.Now),
		}
		standings := make([]decide.Standing, many)
		var all sync.WaitGroup
		for i := range many {
			all.Go(func() {
				facts, _ := g.Gather(t.Context(), id(fmt.Sprintf("child-%d", i)))
				standings[i] = facts.Owners[0].Standing
			})
		}
		synctest.Wait() // all of them wait for the one read
		close(client.release)
		all.Wait()
		if diff := cmp.Diff(slices.Repeat([]decide.Standing{decide.Waiting}, many), standings); diff != "" || client.reads != 1 {
			t.Errorf("%d reads\n%s", client.reads, diff)
		}
	})
}

// What the name stands for now is no answer about what it once stood for, nor about
// what another group calls so.
func TestAtTheSameTimeToo_OnlyEqualClaimsShareARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refs := []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "another"},
			{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner"},
			{APIVersion: "example.com/v1", Kind: "Widget", Name: "owner", UID: "owner"},
		}
		views := told{}
		for i, ref := range refs {
			uid := fmt.Sprint(i)
			views[id(uid)] = graph.View{ID: id(uid), Object: child(uid, "ns", ref), Claims: []graph.Claim{{Reference: ref}}}
		}
		client := &slow{release: make(chan struct{})}
		g := gather.Gatherer{
			Graph: views, Catalog: served, Now: time.Now, Observe: nobody,
			Reader: gather.NewReader(client, func(context.Context, schema.GroupVersionResource) (bool, error) { return true, nil }, time.Now),
		}
		got := make([]decide.Standing, len(refs))
		var all sync.WaitGroup
		for i := range refs {
			all.Go(func() {
				facts, _ := g.Gather(t.Context(), id(fmt.Sprint(i)))
				got[i] = facts.Owners[0].Standing
			})
			synctest.Wait() // it asks, or waits for who does
		}
		close(client.release)
		all.Wait()
		if diff := cmp.Diff([]decide.Standing{decide.Absent, decide.Waiting, decide.Waiting}, got); diff != "" || client.reads != len(refs) {
			t.Errorf("%d reads\n%s", client.reads, diff)
		}
	})
}

// Who gives up on a read learns nothing, at once. The others do not suffer from it.
func TestAReadThatOneGivesUpGoesOnForTheOthers(t *testing.T) {
	for claim, gives := range map[string]int{"who asked first": 0, "who joined": 1} {
		t.Run(claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := &slow{release: make(chan struct{})}
				g := gather.Gatherer{
					Graph: family(2, graph.Foreground), Catalog: served, Now: time.Now, Observe: nobody,
					Reader: gather.NewReader(client, func(context.Context, schema.GroupVersionResource) (bool, error) { return true, nil }, time.Now),
				}
				standings := make([]decide.Standing, 2)
				var ends [2]time.Duration
				var all sync.WaitGroup
				began := time.Now()
				for i := range 2 {
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if i == gives {
						ctx, cancel = context.WithTimeout(ctx, 900*time.Millisecond)
					}
					all.Go(func() {
						defer cancel()
						facts, _ := g.Gather(ctx, id(fmt.Sprintf("child-%d", i)))
						standings[i], ends[i] = facts.Owners[0].Standing, time.Since(began)
					})
					synctest.Wait()
				}
				time.Sleep(2 * time.Second) // of the test's own clock
				close(client.release)
				all.Wait()
				if standings[gives] != decide.Unknown || ends[gives] != 900*time.Millisecond {
					t.Errorf("who gave up: owner is %s, after %s", standings[gives], ends[gives])
				}
				if other := 1 - gives; standings[other] != decide.Waiting || ends[other] != 2*time.Second {
					t.Errorf("the other: owner is %s, after %s", standings[other], ends[other])
				}
			})
		})
	}
}

// Many workers at once, for the race detector.
func TestGatherMayBeCalledConcurrently(t *testing.T) {
	g := &locked{g: graph.New()}
	w := newWorld(t, g, g.apply)
	w.api.answer(mapPath, found(meta("ns", "owner", "owner", "foregroundDeletion")))
	var all sync.WaitGroup
	for i := range 16 {
		uid := fmt.Sprint("child-", i)
		g.apply(graph.Seen{Object: child(uid, "ns", reference(configMap), reference(widget))})
		all.Go(func() {
			for range 20 {
				w.clock.pass(100 * time.Millisecond)
				w.Gather(t.Context(), id(uid))
				w.Barrier.Ask(id(uid))
				w.Barrier.Round(t.Context())
				w.Barrier.Outcome(id(uid), false)
			}
		})
	}
	all.Wait()
}
