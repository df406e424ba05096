package gather_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/gather"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// invented are references to ConfigMaps that never were.
func invented(uid string, n int) []metav1.OwnerReference {
	refs := make([]metav1.OwnerReference, n)
	for i := range refs {
		name := fmt.Sprintf("never-%s-%d", uid, i)
		refs[i] = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: types.UID(name)}
	}
	return refs
}

// crowd is a graph of pods with so many invented owners each, by namespace.
func crowd(owners int, namespaces ...string) *locked {
	g := &locked{g: graph.New()}
	for _, namespace := range namespaces {
		o := child(namespace, namespace, invented(namespace, owners)...)
		g.apply(graph.Seen{Object: o})
	}
	return g
}

func unknownOf(facts decide.Facts) (n int) {
	for _, o := range facts.Owners {
		if o.Standing == decide.Unknown {
			n++
		}
	}
	return n
}

func yes(context.Context, schema.GroupVersionResource) (bool, error) { return true, nil }

// Finding 4: a read, and a goroutine, was begun for each owner that was left when the
// context ended.
func TestGatheringEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &slow{release: make(chan struct{})}
		g := crowd(8000, "ns")
		w := gather.Gatherer{Graph: g, Catalog: served, Now: time.Now, Observe: g.apply, Reader: gather.NewReader(client, yes, time.Now)}
		w.Barrier = gather.NewBarrier(g, gather.Sources{Catalog: served}, client, g.apply, time.Now)
		before := runtime.NumGoroutine()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		facts, _ := w.Gather(ctx, id("ns"))
		if unknown := unknownOf(facts); unknown != 8000 {
			t.Errorf("%d owners are unknown", unknown)
		}
		if more := runtime.NumGoroutine() - before; client.begun() != 1 || more > 2 {
			t.Errorf("%d reads, %d goroutines more", client.begun(), more)
		}
		close(client.release)
		synctest.Wait()
	})
}

// The next pass goes on where the one before has ended, although nobody has waited for
// the answer.
func TestAProofThatComesLateIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := crowd(1, "ns")
		client := &slow{release: make(chan struct{})} // answers with an owner of another UID: the claimed one is absent
		w := gather.Gatherer{Graph: g, Catalog: served, Now: time.Now, Observe: g.apply, Reader: gather.NewReader(client, yes, time.Now)}
		w.Reader.Late = g.apply
		w.Barrier = gather.NewBarrier(g, gather.Sources{Catalog: served}, client, g.apply, time.Now)
		client.named = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if facts, _ := w.Gather(ctx, id("ns")); facts.Owners[0].Standing != decide.Unknown {
			t.Fatalf("before the answer the owner is %s", facts.Owners[0].Standing)
		}
		close(client.release)
		synctest.Wait()
		facts, _ := w.Gather(t.Context(), id("ns"))
		if facts.Owners[0].Standing != decide.Absent || client.begun() != 1 {
			t.Errorf("after it the owner is %s, %d reads", facts.Owners[0].Standing, client.begun())
		}
	})
}

// Whoever gives up in the moment of the answer either has it, or it is handed on: it is
// never lost. For the race detector, too.
func TestNoProofIsLostWhereAnAnswerAndAnEndMeet(t *testing.T) {
	const many = 300
	w := newWorld(t, told{}, nobody)
	var mu sync.Mutex // covers proofs
	proofs := 0
	note := func(events ...graph.Event) {
		mu.Lock()
		defer mu.Unlock()
		proofs += len(events)
	}
	w.Observe, w.Reader.Late = note, note
	for i := range many {
		ctx, cancel := context.WithCancel(t.Context())
		uid := fmt.Sprint("o", i)
		object := child(uid, "ns", invented(uid, 1)...)
		w.Graph = told{id(uid): {ID: id(uid), Object: object, Claims: []graph.Claim{{Reference: object.Owners[0]}}}}
		w.api.answer("/api/v1/namespaces/ns/configmaps/"+object.Owners[0].Name, func(rw http.ResponseWriter, r *http.Request) {
			notFound(r.URL.Path)(rw, r)
			cancel()
		})
		w.Gather(ctx, id(uid))
	}
	deadline := time.Now().Add(10 * time.Second)
	for mu.Lock(); proofs < many && time.Now().Before(deadline); mu.Lock() {
		mu.Unlock()
		runtime.Gosched()
	}
	defer mu.Unlock()
	if proofs != many {
		t.Errorf("%d proofs of %d", proofs, many)
	}
}

// An object with thousands of owners is gone through in passes, each of which goes on
// where the last one has ended. It has lost its owners only when all are absent.
func TestAnObjectWithThousandsOfOwnersIsReadInPasses(t *testing.T) {
	g := crowd(1200, "ns")
	w := newWorld(t, g, g.apply)
	for pass, want := range []struct{ unread, reads int }{{700, 500}, {200, 500}, {0, 200}, {0, 0}} {
		facts, _ := w.Gather(t.Context(), id("ns"))
		if reads := len(w.api.asks()); facts.Unread != want.unread || unknownOf(facts) != want.unread || reads != want.reads {
			t.Errorf("pass %d: %d unread, %d unknown, %d reads", pass, facts.Unread, unknownOf(facts), reads)
		}
		if got := decide.Classify(facts).Kind; (got == decide.Ownerless) != (want.unread == 0) {
			t.Errorf("pass %d: situation %d", pass, got)
		}
	}
}

// Reads that are in flight are bounded, in all and for each namespace, also those that
// nobody waits for any more.
func TestReadsInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var namespaces []string
		for i := range 200 {
			namespaces = append(namespaces, fmt.Sprintf("%c/%d", 'a'+rune(i%5), i))
		}
		client := &slow{release: make(chan struct{})}
		g := told{}
		for _, uid := range namespaces {
			namespace, _, _ := strings.Cut(uid, "/")
			object := child(uid, namespace, invented(strings.ReplaceAll(uid, "/", "-"), 1)...)
			g[id(uid)] = graph.View{ID: id(uid), Object: object, Claims: []graph.Claim{{Reference: object.Owners[0]}}}
		}
		w := gather.Gatherer{Graph: g, Catalog: served, Now: time.Now, Observe: nobody, Reader: gather.NewReader(client, yes, time.Now)}
		var all sync.WaitGroup
		ask := func(wait time.Duration, which func(namespace string) bool) {
			for _, uid := range namespaces {
				if namespace, _, _ := strings.Cut(uid, "/"); which(namespace) {
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), wait)
						defer cancel()
						w.Gather(ctx, id(uid))
					})
				}
			}
			synctest.Wait()
		}
		ask(time.Second, func(namespace string) bool { return namespace == "a" })
		if client.begun() != 8 {
			t.Errorf("one namespace has %d reads in flight", client.begun())
		}
		ask(time.Second, func(namespace string) bool { return namespace != "a" })
		if client.begun() != 32 {
			t.Errorf("%d reads are in flight", client.begun())
		}
		all.Wait() // everyone has given up; the reads go on
		ask(time.Second, func(string) bool { return true })
		if client.begun() != 32 {
			t.Errorf("%d reads are in flight, or were, although nobody was answered", client.begun())
		}
		close(client.release)
		all.Wait()
	})
}
