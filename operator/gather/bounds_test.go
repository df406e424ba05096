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

// invented returns references to ConfigMaps that never existed.
func invented(uid string, n int) []metav1.OwnerReference {
	refs := make([]metav1.OwnerReference, n)
	for i := range refs {
		name := fmt.Sprintf("never-%s-%d", uid, i)
		refs[i] = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: types.UID(name)}
	}
	return refs
}

// manyOwners returns a graph of pods with many nonexistent owners each, by namespace.
func manyOwners(owners int, namespaces ...string) *locked {
	g := &locked{g: graph.New()}
	for _, namespace := range namespaces {
		o := child(namespace, namespace, invented(namespace, owners)...)
		g.apply(graph.Seen{Object: o})
	}
	return g
}

func unknownOf(facts decide.Facts) (n int) {
	for _, o := range facts.Owners {
		if o.Status == decide.Unknown {
			n++
		}
	}
	return n
}

func yes(context.Context, schema.GroupVersionResource) (bool, error) { return true, nil }

// Finding 4: a read and a goroutine were started for each remaining owner after the context
// had ended.
func TestGather_EndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &slow{release: make(chan struct{})}
		g := manyOwners(8000, "ns")
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

// The next pass continues where the previous one has ended, although no caller has waited
// for the result.
func TestReader_KeepsALateProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := manyOwners(1, "ns")
		client := &slow{release: make(chan struct{})} // answers with an owner of another UID: the claimed one is absent
		w := gather.Gatherer{Graph: g, Catalog: served, Now: time.Now, Observe: g.apply, Reader: gather.NewReader(client, yes, time.Now)}
		w.Reader.OnAbandoned = g.apply
		w.Barrier = gather.NewBarrier(g, gather.Sources{Catalog: served}, client, g.apply, time.Now)
		client.named = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if facts, _ := w.Gather(ctx, id("ns")); facts.Owners[0].Status != decide.Unknown {
			t.Fatalf("before the answer the owner is %s", facts.Owners[0].Status)
		}
		close(client.release)
		synctest.Wait()
		facts, _ := w.Gather(t.Context(), id("ns"))
		if facts.Owners[0].Status != decide.Absent || client.begun() != 1 {
			t.Errorf("after it the owner is %s, %d reads", facts.Owners[0].Status, client.begun())
		}
	})
}

// A caller that is canceled at the moment of the result either gets it, or Late does: it is
// never lost. Also for the race detector.
func TestReader_NoProofIsLostOnConcurrentCancel(t *testing.T) {
	const many = 300
	w := newFixture(t, fixedGraph{}, noOwner)
	var mu sync.Mutex // covers proofs
	proofs := 0
	note := func(events ...graph.Event) {
		mu.Lock()
		defer mu.Unlock()
		proofs += len(events)
	}
	w.Observe, w.Reader.OnAbandoned = note, note
	for i := range many {
		ctx, cancel := context.WithCancel(t.Context())
		uid := fmt.Sprint("o", i)
		object := child(uid, "ns", invented(uid, 1)...)
		w.Graph = fixedGraph{id(uid): {ID: id(uid), Object: object, Claims: []graph.Claim{{Reference: object.Owners[0]}}}}
		w.api.answer("/api/v1/namespaces/ns/configmaps/"+object.Owners[0].Name, func(rw http.ResponseWriter, r *http.Request) {
			notFound(r.URL.Path)(rw, r)
			cancel()
		})
		w.Gather(ctx, id(uid))
	}
	deadline := time.Now().Add(2 * time.Minute)
	for mu.Lock(); proofs < many && time.Now().Before(deadline); mu.Lock() {
		mu.Unlock()
		runtime.Gosched()
	}
	defer mu.Unlock()
	if proofs != many {
		t.Errorf("%d proofs of %d", proofs, many)
	}
}

// The owners of an object with thousands of them are read in passes, each of which continues
// where the last one has ended. The object has lost its owners only when all are absent.
func TestGather_ReadsThousandsOfOwnersInPasses(t *testing.T) {
	g := manyOwners(1200, "ns")
	w := newFixture(t, g, g.apply)
	for pass, want := range []struct{ unread, reads int }{{700, 500}, {200, 500}, {0, 200}, {0, 0}} {
		facts, _ := w.Gather(t.Context(), id("ns"))
		if reads := len(w.api.requests()); facts.UnreadOwners != want.unread || unknownOf(facts) != want.unread || reads != want.reads {
			t.Errorf("pass %d: %d unread, %d unknown, %d reads", pass, facts.UnreadOwners, unknownOf(facts), reads)
		}
		if got := decide.Classify(facts).Kind; (got == decide.Ownerless) != (want.unread == 0) {
			t.Errorf("pass %d: situation %d", pass, got)
		}
	}
}

// The number of reads in flight is limited, in total and for each namespace, including those
// that no caller waits for any more.
func TestReader_LimitsReadsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var namespaces []string
		for i := range 200 {
			namespaces = append(namespaces, fmt.Sprintf("%c/%d", 'a'+rune(i%5), i))
		}
		client := &slow{release: make(chan struct{})}
		g := fixedGraph{}
		for _, uid := range namespaces {
			namespace, _, _ := strings.Cut(uid, "/")
			object := child(uid, namespace, invented(strings.ReplaceAll(uid, "/", "-"), 1)...)
			g[id(uid)] = graph.View{ID: id(uid), Object: object, Claims: []graph.Claim{{Reference: object.Owners[0]}}}
		}
		w := gather.Gatherer{Graph: g, Catalog: served, Now: time.Now, Observe: noOwner, Reader: gather.NewReader(client, yes, time.Now)}
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
			t.Errorf("%d reads are in flight, or were, although no read has finished", client.begun())
		}
		close(client.release)
		all.Wait()
	})
}
