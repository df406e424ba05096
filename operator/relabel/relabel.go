// Package relabel evaluates the object selectors of policies on objects that the watches showed
// before the selectors were known: it lists the objects of the types concerned again.
//
// It only saves reads. An object that is not labeled for the current selectors is read when it is
// decided about.
package relabel

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/selection"
	"github.com/gleaner-dev/gleaner/operator/selectors"
)

const (
	// A place is listed at most once in minInterval, and lists take at most one part in
	// restFactor+1 of the time, however often policies are changed.
	minInterval = time.Minute
	minRest     = time.Second
	maxRest     = 5 * time.Minute
	restFactor  = 20

	// listTimeout bounds the listing of one place.
	listTimeout = 10 * time.Minute

	pageSize = 500 // objects
)

// Store has the objects.
type Store interface {
	Apply(events ...graph.Event)

	// HasSelection reports whether some seen object of a kind has a namespace and a Selection for
	// which a function returns true.
	HasSelection(gk schema.GroupKind, matches func(namespace string, s selection.Selection) bool) bool
}

// Options configure a Relabeler. All fields are required.
type Options struct {
	Changed   func() <-chan struct{} // closed when Selectors returns something else than before the call
	Selectors func() *selectors.Index
	Types     func() *catalog.Catalog
	Gate      *gate.Gate // nothing is listed while it is closed
	Client    metadata.Interface
	Store     Store
	Now       func() time.Time
	Log       logr.Logger
}

// Relabeler labels objects for new selectors. Create it with New.
type Relabeler struct {
	options Options
	places  places
	listed  map[key]time.Time // when a place was listed last, or failed to be
	rest    time.Time         // until when nothing is listed
}

// New returns a Relabeler.
func New(o Options) *Relabeler {
	return &Relabeler{options: o, places: places{}, listed: map[key]time.Time{}}
}

// Run labels objects until ctx ends.
func (r *Relabeler) Run(ctx context.Context) error {
	for {
		policies, opened := r.options.Changed(), r.options.Gate.Changed()
		timer := time.NewTimer(r.Step(ctx))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-policies:
		case <-opened:
		case <-timer.C: // also types may be new
		}
		timer.Stop()
	}
}

// Step labels the objects of at most one place, and returns when to call it again.
func (r *Relabeler) Step(ctx context.Context) time.Duration {
	index, now := r.options.Selectors(), r.options.Now()
	if index == nil || !r.options.Gate.IsOpen() {
		return minInterval
	}
	next := minInterval
	for _, p := range r.places.pending(index, r.options.Types()) {
		if !r.isNeeded(p, index) {
			r.places.done(p, index)
			continue
		}
		if due := r.due(p); due.After(now) {
			next = min(next, due.Sub(now))
			continue
		}
		r.list(ctx, p, index)
		return r.rest.Sub(r.options.Now())
	}
	r.forget(now)
	return next
}

// due returns when a place may be listed.
func (r *Relabeler) due(p place) time.Time {
	last, ok := r.listed[p.key()]
	if due := last.Add(minInterval); ok && due.After(r.rest) {
		return due
	}
	return r.rest
}

// forget forgets what doesn't limit anything any more.
func (r *Relabeler) forget(now time.Time) {
	for k, last := range r.listed {
		if now.Sub(last) >= minInterval {
			delete(r.listed, k)
		}
	}
}

// isNeeded reports whether an object of a place is not labeled for its selectors.
func (r *Relabeler) isNeeded(p place, index *selectors.Index) bool {
	if listOf(p, index).IsEmpty() && p.namespace != "" {
		return false
	}
	resource := p.resource.Version.GroupResource()
	return r.options.Store.HasSelection(p.resource.GroupKind(), func(namespace string, s selection.Selection) bool {
		if p.namespace != "" && p.namespace != namespace {
			return false
		}
		list := index.Scope(resource, namespace).List()
		return !list.IsEmpty() && !list.IsKnown(s)
	})
}

// list labels the objects of a place.
func (r *Relabeler) list(ctx context.Context, p place, index *selectors.Index) {
	began := r.options.Now()
	err := r.label(ctx, p, index)
	now := r.options.Now()
	r.listed[p.key()] = now
	r.rest = now.Add(min(max(restFactor*now.Sub(began), minRest), maxRest))
	log := r.options.Log.WithValues("resource", p.resource.Version.GroupResource().String(), "namespace", p.namespace)
	if err != nil {
		log.Info("Could not evaluate new selectors for all objects: others are read one by one", "cause", err.Error())
		return
	}
	r.places.done(p, index)
	log.V(1).Info("Evaluated new selectors", "took", now.Sub(began))
}

func (r *Relabeler) label(ctx context.Context, p place, index *selectors.Index) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	client := r.options.Client.Resource(p.resource.Version).Namespace(p.namespace)
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) })
	list.PageSize, list.PageBufferSize, list.FullListIfExpired = pageSize, 1, false
	resource, events := p.resource.Version.GroupResource(), make([]graph.Event, 0, pageSize)
	err := list.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		meta, ok := item.(*metav1.PartialObjectMetadata)
		if !ok {
			return fmt.Errorf("got a %T in a list of metadata", item)
		}
		events = append(events, graph.Labeled{
			UID: meta.UID, ResourceVersion: meta.ResourceVersion,
			Selection: index.Scope(resource, meta.Namespace).Evaluate(labels.Set(meta.Labels)),
		})
		if len(events) == pageSize {
			r.options.Store.Apply(events...)
			events = events[:0]
		}
		return nil
	})
	r.options.Store.Apply(events...)
	if err != nil {
		return fmt.Errorf("list %s: %w", resource, err)
	}
	return nil
}
