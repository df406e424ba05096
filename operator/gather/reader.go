package gather

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

const (
	// ownerCacheTTL is how long the result of reading an owner, or the error, is reused for
	// its other dependents. It bounds the delay until a second DELETE of a waiting owner
	// is noticed that the watch has not delivered yet.
	ownerCacheTTL = time.Second

	// ownerTimeout is the timeout of a read that dependents share, so that an API server
	// that does not respond does not block workers for longer.
	ownerTimeout = 5 * time.Second
)

// maxCachedOwners is the number of cached owners from which expired ones are removed.
const maxCachedOwners = 512

// Serves reports, by a new discovery request, whether the API server serves a resource.
type Serves func(context.Context, schema.GroupVersionResource) (bool, error)

// Reader reads owners live. Dependents of one owner that need it at the same time, or
// within ownerCacheTTL, share one read. The number of concurrent reads is limited, including
// those that no caller waits for any more.
type Reader struct {
	client metadata.Interface
	serves Serves
	now    func() time.Time
	slots  *slots

	// OnAbandoned receives the result of a read after all its callers have given up; it is lost
	// if Late is nil. It is called on a goroutine of the Reader, and must be set before
	// first use.
	OnAbandoned func(...graph.Event)

	mu       sync.Mutex // covers what follows
	cache    map[graph.Coordinates]cachedRead
	inFlight map[graph.Coordinates]*inFlightRead
}

// inFlightRead is a read in flight that several callers may wait for.
type inFlightRead struct {
	done   chan struct{} // closed when answer and err are set
	result readResult
	err    error

	// What follows is covered by the Reader's lock.
	waiters  int  // callers that still wait
	finished bool // done is closed, or about to be
}

type cachedRead struct {
	result    readResult
	err       error
	startedAt time.Time // when the read started
}

// NewReader returns a Reader.
func NewReader(client metadata.Interface, serves Serves, now func() time.Time) *Reader {
	return &Reader{
		client: client, serves: serves, now: now, slots: newSlots(maxReads, maxNamespaceReads),
		cache: map[graph.Coordinates]cachedRead{}, inFlight: map[graph.Coordinates]*inFlightRead{},
	}
}

// readResult is the result of a read: an object, or the proof that no object with that UID
// exists at those coordinates.
type readResult struct {
	object  graph.Object
	absent  bool
	message string
}

// Owner reads the owner that a reference claims, for an object in a namespace. An error
// means that nothing is known. The read is shared: a caller whose context ends stops
// waiting, even for the start of the read, without canceling it for others. A webhook must
// respond in less time than an API server may take.
func (r *Reader) Owner(ctx context.Context, namespace string, at graph.Coordinates, resource catalog.Resource) (readResult, error) {
	if f, ok := r.cached(at); ok {
		return f.result, f.err
	}
	shared, ok := r.join(at)
	if !ok {
		if err := r.slots.acquire(ctx, namespace); err != nil {
			return readResult{}, fmt.Errorf("read %s: %w", at, err)
		}
		var started bool
		if shared, started = r.joinOrStart(at); started {
			go r.run(context.WithoutCancel(ctx), namespace, at, resource, shared)
		} else {
			r.slots.release(namespace) // another caller has started it meanwhile
		}
	}
	select {
	case <-ctx.Done():
		if r.leave(shared) {
			return readResult{}, fmt.Errorf("read %s: %w", at, ctx.Err())
		}
		<-shared.done // about to be closed
	case <-shared.done:
	}
	return shared.result, shared.err
}

// join adds a caller to a read in flight.
func (r *Reader) join(at graph.Coordinates) (*inFlightRead, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	shared, ok := r.inFlight[at]
	if ok {
		shared.waiters++
	}
	return shared, ok
}

// joinOrStart joins a read in flight, or starts a new one.
func (r *Reader) joinOrStart(at graph.Coordinates) (shared *inFlightRead, started bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	shared, ok := r.inFlight[at]
	if !ok {
		shared = &inFlightRead{done: make(chan struct{})}
		r.inFlight[at] = shared
	}
	shared.waiters++
	return shared, !ok
}

// leave removes a caller from a read. It returns false if the read has finished.
func (r *Reader) leave(shared *inFlightRead) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	shared.waiters--
	return !shared.finished
}

// run reads for all waiting callers. They pass on the result, or Late does.
func (r *Reader) run(ctx context.Context, namespace string, at graph.Coordinates, resource catalog.Resource, shared *inFlightRead) {
	defer r.slots.release(namespace)
	started := r.now()
	ctx, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	shared.result, shared.err = r.ReadLive(ctx, at, resource)
	if shared.err != nil || !shared.result.absent {
		r.store(at, cachedRead{result: shared.result, err: shared.err, startedAt: started})
	}
	r.mu.Lock()
	delete(r.inFlight, at)
	shared.finished = true
	abandoned := shared.waiters == 0
	r.mu.Unlock()
	close(shared.done)
	if abandoned && shared.err == nil && r.OnAbandoned != nil {
		r.OnAbandoned(eventsOf(at, resource, shared.result, r.now())...)
	}
}

// eventsOf returns the result of a read as events.
func eventsOf(at graph.Coordinates, resource catalog.Resource, a readResult, now time.Time) []graph.Event {
	switch {
	case !a.absent:
		return []graph.Event{graph.Read{Object: a.object}}
	case resource.Local: // absence of other types is proven each time
		return []graph.Event{graph.Absent{Claim: at, At: now}}
	default:
		return nil
	}
}

// ReadLive reads one object live. A reference may claim any string as a name; an invalid one
// would lead to another path of the API server.
func (r *Reader) ReadLive(ctx context.Context, at graph.Coordinates, resource catalog.Resource) (readResult, error) {
	if wrong := content.IsPathSegmentName(at.Name); len(wrong) != 0 || at.Name == "" {
		return readResult{}, fmt.Errorf("read %s in namespace %q: %q is not a valid name", at.Kind.Kind, at.Namespace, at.Name)
	}
	a, err := r.get(ctx, at, resource)
	if err == nil && a.absent && resource.Ambiguous {
		return readResult{}, fmt.Errorf("read %s: it is not one of %s, but other resources have the same kind", at, resource.Version.GroupResource())
	}
	if err != nil || !a.absent || resource.Local {
		return a, err
	}
	// An aggregated API server may respond without data, so a second read must confirm
	// the absence.
	return r.get(ctx, at, resource)
}

func (r *Reader) get(ctx context.Context, at graph.Coordinates, resource catalog.Resource) (readResult, error) {
	meta, err := r.client.Resource(resource.Version).Namespace(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	if err != nil {
		return r.proveAbsence(ctx, at, resource, err)
	}
	if meta.UID == "" || meta.Name != at.Name || meta.Namespace != at.Namespace {
		return readResult{}, fmt.Errorf("read %s: the response is for another object, or for none", at)
	}
	if meta.UID != at.UID {
		return readResult{absent: true, message: "an object with that name has another UID"}, nil
	}
	return readResult{object: graph.ObjectOf(at.Kind, meta), message: "a live read found it"}, nil
}

// proveAbsence returns a proof of absence for a failed read, or its error. A 404 is a proof only
// if it is a Status that names the claimed object, as an API server sends it that serves
// the type and has no such object, and if discovery lists the type now. The 404 of a
// proxy, or of an API server that does not serve the type yet, proves nothing.
func (r *Reader) proveAbsence(ctx context.Context, at graph.Coordinates, resource catalog.Resource, err error) (readResult, error) {
	err = fmt.Errorf("read %s: %w", at, err)
	if !catalog.ConfirmsNotFound(err, resource.Version.GroupResource(), at.Name) {
		return readResult{}, err
	}
	served, discoveryErr := r.serves(ctx, resource.Version)
	switch {
	case discoveryErr != nil:
		return readResult{}, fmt.Errorf("%w; discovery of its type failed: %w", err, discoveryErr)
	case !served:
		return readResult{}, fmt.Errorf("%w; its type is not served", err)
	}
	return readResult{absent: true, message: "the API server has no such object"}, nil
}

func (r *Reader) cached(at graph.Coordinates) (cachedRead, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, ok := r.cache[at]
	return f, ok && r.now().Sub(f.startedAt) < ownerCacheTTL
}

func (r *Reader) store(at graph.Coordinates, f cachedRead) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if len(r.cache) >= maxCachedOwners {
		maps.DeleteFunc(r.cache, func(_ graph.Coordinates, f cachedRead) bool { return now.Sub(f.startedAt) >= ownerCacheTTL })
	}
	r.cache[at] = f
}
