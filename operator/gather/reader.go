package gather

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
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
// or within ownerBatch, share one read.
type Reader struct {
	client metadata.Interface
	serves Serves
	now    func() time.Time
	calls  singleflight.Group

	mu    sync.Mutex // covers found
	found map[graph.Coordinates]found
}

type found struct {
	answer answer
	err    error     // that it could not be read
	at     time.Time // when it was asked for
}

// NewReader returns a Reader.
func NewReader(client metadata.Interface, serves Serves, now func() time.Time) *Reader {
	return &Reader{client: client, serves: serves, now: now, found: map[graph.Coordinates]found{}}
}

// answer is what a read has shown: an object, or the proof that there is none
// with that UID at those coordinates.
type answer struct {
	object graph.Object
	absent bool
	reason string
}

// Owner reads the owner that a reference claims. An error means that nothing
// was learnt. The read is nobody's own: who gives up does not end it for the
// others, and nobody waits for it longer than their context lasts. A webhook is
// answered in less time than an API server may take.
func (r *Reader) Owner(ctx context.Context, at graph.Coordinates, resource catalog.Resource) (answer, error) {
	if f, ok := r.recent(at); ok {
		return f.answer, f.err
	}
	shared := r.calls.DoChan(keyOf(at), func() (any, error) {
		asked := r.now()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ownerTimeout)
		defer cancel()
		a, err := r.Item(ctx, at, resource)
		if err != nil || !a.absent {
			r.remember(at, found{answer: a, err: err, at: asked})
		}
		return a, err
	})
	select {
	case <-ctx.Done():
		return answer{}, fmt.Errorf("read %s: %w", at, ctx.Err())
	case result := <-shared:
		if result.Err != nil {
			return answer{}, result.Err
		}
		return result.Val.(answer), nil
	}
}

// keyOf is the whole claim. Its String is for people, and has neither UID nor group:
// with that, who claims an owner of another UID would be given the same answer.
func keyOf(at graph.Coordinates) string {
	return fmt.Sprintf("%q %q %q %q %q %q", at.UID, at.Kind.Group, at.Kind.Version, at.Kind.Kind, at.Namespace, at.Name)
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
