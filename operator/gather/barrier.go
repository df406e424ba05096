package gather

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

const (
	// BarrierPeriod is the least time between two rounds of the barrier.
	BarrierPeriod = 250 * time.Millisecond

	// confirmedFor is how long a round's good news is kept. It does not spoil:
	// one list after the owner was seen terminating shows all that was made
	// before, and what is made later no list could show. It outlasts a long
	// queue, or an owner in it would have to be confirmed again and again.
	confirmedFor = 5 * time.Minute

	barrierPage = 500
)

// Barrier confirms, before an owner's last step, that it has no dependent
// which the watch has not shown yet (defects 3.16 and 3.17). All owners that
// wait share one round: the kinds of which the graph knows dependents of such
// owners are listed once for each namespace in question, and what is found
// enters the graph before the owners are told.
//
// The watch's bookmarks would be cheaper, but come only once a minute.
type Barrier struct {
	graph   Graph
	catalog func() *catalog.Catalog
	client  metadata.Interface
	observe func(...graph.Event)
	now     func() time.Time
	asked   chan struct{} // capacity 1: there are requests

	mu       sync.Mutex // covers what follows
	requests map[graph.ID]struct{}
	outcomes map[graph.ID]outcome
}

type outcome struct {
	failure string
	at      time.Time
}

// NewBarrier returns a Barrier that passes what it finds to observe.
func NewBarrier(g Graph, types func() *catalog.Catalog, client metadata.Interface, observe func(...graph.Event), now func() time.Time) *Barrier {
	return &Barrier{
		graph: g, catalog: types, client: client, observe: observe, now: now,
		asked:    make(chan struct{}, 1),
		requests: map[graph.ID]struct{}{},
		outcomes: map[graph.ID]outcome{},
	}
}

// Ask has the object's dependents looked for in the next round, which begins
// after this call.
func (b *Barrier) Ask(id graph.ID) {
	b.mu.Lock()
	b.requests[id] = struct{}{}
	b.mu.Unlock()
	select {
	case b.asked <- struct{}{}:
	default:
	}
}

// Asked is readable when Round has something to do.
func (b *Barrier) Asked() <-chan struct{} { return b.asked }

// Outcome reports whether a recent round has confirmed the object's dependents
// or, if it could not, why. Bad news is told once.
func (b *Barrier) Outcome(id graph.ID) (confirmed bool, failure string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.outcomes[id]
	if !ok {
		return false, ""
	}
	if o.failure != "" || b.now().Sub(o.at) > confirmedFor {
		delete(b.outcomes, id)
		return false, o.failure
	}
	return true, ""
}

// Round looks for dependents of all owners that were asked about, and returns
// those owners: each has an outcome now.
func (b *Barrier) Round(ctx context.Context) []graph.ID {
	ids := b.take()
	began := b.now()
	plan := b.places(ids)
	failures := map[graph.ID]string{}
	for place, owners := range plan {
		if err := b.look(ctx, place, owners); err != nil {
			for _, id := range owners {
				failures[id] = err.Error()
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.outcomes, func(_ graph.ID, o outcome) bool { return began.Sub(o.at) > confirmedFor })
	for _, id := range ids {
		b.outcomes[id] = outcome{failure: failures[id], at: began}
	}
	return ids
}

func (b *Barrier) take() []graph.ID {
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := make([]graph.ID, 0, len(b.requests))
	for id := range b.requests {
		ids = append(ids, id)
	}
	clear(b.requests)
	return ids
}

// place is where dependents may be: a kind, and a namespace or all of them.
type place struct {
	kind      schema.GroupKind
	namespace string
}

// places says where the dependents of the owners may be, and of which owners.
func (b *Barrier) places(ids []graph.ID) map[place][]graph.ID {
	found := map[place][]graph.ID{}
	for _, id := range ids {
		view, ok := b.graph.Look(id)
		if !ok {
			continue
		}
		for _, gk := range view.DependentKinds {
			at := place{kind: gk, namespace: view.Object.Namespace}
			found[at] = append(found[at], id)
		}
	}
	return found
}

// look lists one place, and hands on the objects there that name one of the
// owners. A kind that is not served has no objects, and no cluster-scoped
// object can have an owner in a namespace.
func (b *Barrier) look(ctx context.Context, at place, owners []graph.ID) error {
	resource, served := b.catalog().Preferred(at.kind)
	if !served || !resource.Namespaced && at.namespace != "" {
		return nil
	}
	wanted := map[types.UID]struct{}{}
	for _, id := range owners {
		if view, ok := b.graph.Look(id); ok {
			wanted[view.Object.UID] = struct{}{}
		}
	}
	client := b.client.Resource(resource.Version).Namespace(at.namespace)
	options := metav1.ListOptions{Limit: barrierPage}
	for {
		page, err := client.List(ctx, options)
		if err != nil {
			return fmt.Errorf("list %s for dependents: %w", resource.Version.Resource, err)
		}
		gvk := resource.Version.GroupVersion().WithKind(resource.Kind)
		for i := range page.Items {
			if namesAny(&page.Items[i], wanted) {
				b.observe(graph.Read{Object: graph.ObjectOf(gvk, &page.Items[i])})
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}

func namesAny(o metav1.Object, wanted map[types.UID]struct{}) bool {
	for _, ref := range o.GetOwnerReferences() {
		if _, ok := wanted[ref.UID]; ok {
			return true
		}
	}
	return false
}
