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
	// ownerBatch is for how long an owner that was read and found, or could not
	// be read, is taken to be so for its other dependents. It bounds how late a
	// second DELETE of a waiting owner, one that the watch has not shown yet, can
	// be noticed.
	ownerBatch = time.Second

	// ownerTimeout bounds a read that dependents share, so that an API server
	// which does not answer holds no worker for longer.
	ownerTimeout = 5 * time.Second
)

// ownersKept is how many such owners are kept before old ones are cleared out.
const ownersKept = 512

// Serves reports whether the API server's discovery serves a resource at this
// moment, asked anew.
type Serves func(context.Context, schema.GroupVersionResource) (bool, error)

// Reader reads owners live. Dependents of one owner that ask at the same time,
// or within ownerBatch, share one read. The number of reads that run at the same
// time is bounded, also of those that nobody waits for any more.
type Reader struct {
	client metadata.Interface
	serves Serves
	now    func() time.Time
	slots  *slots

	// Late takes what a read shows after everyone who asked has given up, so that it is
	// not lost; nil: it is. It is called on a goroutine of the Reader's. It is set before
	// the first use.
	Late func(...graph.Event)

	mu      sync.Mutex // covers what follows
	found   map[graph.Coordinates]found
	running map[graph.Coordinates]*running
}

// running is a read that several may wait for.
type running struct {
	done   chan struct{} // closed when answer and err are set
	answer answer
	err    error

	// What follows is covered by the Reader's lock.
	asking   int  // who still waits
	finished bool // done is closed, or about to be
}

type found struct {
	answer answer
	err    error     // that it could not be read
	at     time.Time // when it was asked for
}

// NewReader returns a Reader.
func NewReader(client metadata.Interface, serves Serves, now func() time.Time) *Reader {
	return &Reader{
		client: client, serves: serves, now: now, slots: newSlots(maxReads, maxNamespaceReads),
		found: map[graph.Coordinates]found{}, running: map[graph.Coordinates]*running{},
	}
}

// answer is what a read has shown: an object, or the proof that there is none
// with that UID at those coordinates.
type answer struct {
	object graph.Object
	absent bool
	reason string
}

// Owner reads the owner that a reference claims, for an object in a namespace. An error
// means that nothing was learnt. The read is nobody's own: who gives up does not end it
// for the others, and nobody waits for it, or for its beginning, longer than their
// context lasts. A webhook is answered in less time than an API server may take.
func (r *Reader) Owner(ctx context.Context, namespace string, at graph.Coordinates, resource catalog.Resource) (answer, error) {
	if f, ok := r.recent(at); ok {
		return f.answer, f.err
	}
	shared, ok := r.join(at)
	if !ok {
		if err := r.slots.acquire(ctx, namespace); err != nil {
			return answer{}, fmt.Errorf("read %s: %w", at, err)
		}
		var begun bool
		if shared, begun = r.begin(at); begun {
			go r.run(context.WithoutCancel(ctx), namespace, at, resource, shared)
		} else {
			r.slots.release(namespace) // another one has begun it meanwhile
		}
	}
	select {
	case <-ctx.Done():
		if r.leave(shared) {
			return answer{}, fmt.Errorf("read %s: %w", at, ctx.Err())
		}
		<-shared.done // at this moment
	case <-shared.done:
	}
	return shared.answer, shared.err
}

// join waits for a read that runs already.
func (r *Reader) join(at graph.Coordinates) (*running, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	shared, ok := r.running[at]
	if ok {
		shared.asking++
	}
	return shared, ok
}

// begin is join, or the beginning of a new read.
func (r *Reader) begin(at graph.Coordinates) (shared *running, begun bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	shared, ok := r.running[at]
	if !ok {
		shared = &running{done: make(chan struct{})}
		r.running[at] = shared
	}
	shared.asking++
	return shared, !ok
}

// leave gives up waiting. It reports false if there is nothing to wait for any more.
func (r *Reader) leave(shared *running) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	shared.asking--
	return !shared.finished
}

// run reads for all who wait. What it learns is handed on by them, or as Late.
func (r *Reader) run(ctx context.Context, namespace string, at graph.Coordinates, resource catalog.Resource, shared *running) {
	defer r.slots.release(namespace)
	asked := r.now()
	ctx, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	shared.answer, shared.err = r.Item(ctx, at, resource)
	if shared.err != nil || !shared.answer.absent {
		r.remember(at, found{answer: shared.answer, err: shared.err, at: asked})
	}
	r.mu.Lock()
	delete(r.running, at)
	shared.finished = true
	late := shared.asking == 0
	r.mu.Unlock()
	close(shared.done)
	if late && shared.err == nil && r.Late != nil {
		r.Late(learned(at, resource, shared.answer, r.now())...)
	}
}

// learned is what a read has shown, as events.
func learned(at graph.Coordinates, resource catalog.Resource, a answer, now time.Time) []graph.Event {
	switch {
	case !a.absent:
		return []graph.Event{graph.Read{Object: a.object}}
	case resource.Local: // of others, absence is asked for each time
		return []graph.Event{graph.Absent{Claim: at, At: now}}
	default:
		return nil
	}
}

// Item reads one object, now. A reference may claim any text as a name; what
// can't be one would lead the request to another path of the API server.
func (r *Reader) Item(ctx context.Context, at graph.Coordinates, resource catalog.Resource) (answer, error) {
	if wrong := content.IsPathSegmentName(at.Name); len(wrong) != 0 || at.Name == "" {
		return answer{}, fmt.Errorf("read %s in namespace %q: %q can't be a name", at.Kind.Kind, at.Namespace, at.Name)
	}
	a, err := r.once(ctx, at, resource)
	if err == nil && a.absent && resource.Ambiguous {
		return answer{}, fmt.Errorf("read %s: it is not among %s, and other resources have the same kind", at, resource.Version.GroupResource())
	}
	if err != nil || !a.absent || resource.Local {
		return a, err
	}
	// An aggregated API server may answer from nothing much, so its word
	// counts only when it is given twice.
	return r.once(ctx, at, resource)
}

func (r *Reader) once(ctx context.Context, at graph.Coordinates, resource catalog.Resource) (answer, error) {
	meta, err := r.client.Resource(resource.Version).Namespace(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	if err != nil {
		return r.prove(ctx, at, resource, err)
	}
	if meta.UID == "" || meta.Name != at.Name || meta.Namespace != at.Namespace {
		return answer{}, fmt.Errorf("read %s: the answer is about another object, or about none", at)
	}
	if meta.UID != at.UID {
		return answer{absent: true, reason: "an object of that name has another UID"}, nil
	}
	return answer{object: graph.ObjectOf(at.Kind, meta), reason: "a read found it"}, nil
}

// prove makes a proof of absence of a failed read, or returns its error. A 404
// proves something only if it is a Status that names the claimed object, as
// an API server answers that serves the type and has no such object, and if
// discovery serves the type at this moment. A proxy's 404, and that of an API
// server which does not know the type yet, are neither.
func (r *Reader) prove(ctx context.Context, at graph.Coordinates, resource catalog.Resource, err error) (answer, error) {
	err = fmt.Errorf("read %s: %w", at, err)
	if !catalog.Denies(err, resource.Version.GroupResource(), at.Name) {
		return answer{}, err
	}
	served, discoveryErr := r.serves(ctx, resource.Version)
	switch {
	case discoveryErr != nil:
		return answer{}, fmt.Errorf("%w; and whether the type is served could not be asked: %w", err, discoveryErr)
	case !served:
		return answer{}, fmt.Errorf("%w; but its type is not served at this moment", err)
	}
	return answer{absent: true, reason: "the API server has no such object"}, nil
}

func (r *Reader) recent(at graph.Coordinates) (found, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, ok := r.found[at]
	return f, ok && r.now().Sub(f.at) < ownerBatch
}

func (r *Reader) remember(at graph.Coordinates, f found) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if len(r.found) >= ownersKept {
		maps.DeleteFunc(r.found, func(_ graph.Coordinates, f found) bool { return now.Sub(f.at) >= ownerBatch })
	}
	r.found[at] = f
}
