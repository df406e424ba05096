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

// outcome is what a round found out for one owner, and for one way of being
// deleted: a second DELETE that changes it begins anew.
type outcome struct {
	failure string
	orphans bool
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

// Outcome reports whether a recent round has confirmed the dependents of an
// owner that is being deleted so, orphaning them or not, or, if it could not,
// why. Bad news is told once.
func (b *Barrier) Outcome(id graph.ID, orphans bool) (confirmed bool, failure string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.outcomes[id]
	if !ok {
		return false, ""
	}
	if o.failure == "" && o.orphans == orphans && b.now().Sub(o.at) <= confirmedFor {
		return true, ""
	}
	delete(b.outcomes, id)
	return false, o.failure
}

// Round looks for dependents of all owners that were asked about, and returns
// those owners. Each that is still there has an outcome now.
func (b *Barrier) Round(ctx context.Context) []graph.ID {
	ids := b.take()
	began := b.now()
	owners := map[graph.ID]graph.View{}
	for _, id := range ids {
		if view, ok := b.graph.Look(id); ok && (view.Waits() || view.Orphans()) {
			owners[id] = view
		}
	}
	failures := map[graph.ID]string{}
	for at, there := range places(owners) {
		if err := b.look(ctx, at, there); err != nil {
			for _, owner := range there {
				failures[owner.ID] = err.Error()
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.outcomes, func(_ graph.ID, o outcome) bool { return began.Sub(o.at) > confirmedFor })
	for id, owner := range owners {
		b.outcomes[id] = outcome{failure: failures[id], orphans: owner.Orphans(), at: began}
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
func places(owners map[graph.ID]graph.View) map[place][]graph.View {
	found := map[place][]graph.View{}
	for _, owner := range owners {
		for _, gk := range owner.DependentKinds {
			at := place{kind: gk, namespace: owner.Object.Namespace}
			found[at] = append(found[at], owner)
		}
	}
	return found
}

// look lists one place, and hands on the objects there that name one of the
// owners. A kind that is not served has no objects, and no cluster-scoped
// object can have an owner in a namespace.
func (b *Barrier) look(ctx context.Context, at place, owners []graph.View) error {
	resource, served := b.catalog().Preferred(at.kind)
	if !served || !resource.Namespaced && at.namespace != "" {
		return nil
	}
	wanted := map[types.UID]struct{}{}
	for _, owner := range owners {
		wanted[owner.Object.UID] = struct{}{}
	}
	client := b.client.Resource(resource.Version).Namespace(at.namespace)
	options := metav1.ListOptions{Limit: barrierPage}
	var late error
	for {
		page, err := client.List(ctx, options)
		if err != nil {
			return fmt.Errorf("list %s for dependents: %w", resource.Version.Resource, err)
		}
		for i := range page.Items {
			o := graph.ObjectOf(resource.GroupVersionKind(), &page.Items[i])
			if !namesAny(o, wanted) {
				continue
			}
			if err := b.takeIn(o, wanted); err != nil {
				late = err // one of them is enough to say
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return late
		}
	}
}

// takeIn hands a dependent on to the graph, and makes sure that it has it. The
// graph does not if its watch is somewhere else at the moment, say in the
// middle of a list; then nothing is confirmed.
func (b *Barrier) takeIn(dependent graph.Object, wanted map[types.UID]struct{}) error {
	b.observe(graph.Read{Object: dependent})
	view, ok := b.graph.Look(graph.IDOf(dependent.UID))
	if !ok || !namesAny(view.Object, wanted) {
		return fmt.Errorf("%s %s/%s was listed as a dependent, and its watch says otherwise: one of them is late",
			dependent.Kind.Kind, dependent.Namespace, dependent.Name)
	}
	return nil
}

func namesAny(o graph.Object, wanted map[types.UID]struct{}) bool {
	for _, ref := range o.Owners {
		if _, ok := wanted[ref.UID]; ok {
			return true
		}
	}
	return false
}
