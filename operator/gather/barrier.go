package gather

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
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

	// confirmedFor is how long a round's good news is kept for its owner to
	// come to its turn in the queue. It is used once.
	confirmedFor = 30 * time.Second

	barrierPage    = 500
	barrierLists   = 8                // at the same time
	barrierTimeout = 30 * time.Second // of one list, with all its pages
)

// Barrier confirms, before an owner's last step, that it has no dependent
// which the watch has not shown yet (defects 3.16 and 3.17). All owners that
// wait share one round: the kinds of which there may be dependents are listed
// once for each namespace in question, and what is found enters the graph
// before the owners are told.
//
// A dependent of an owner that orphans must not be missed: it would be
// collected later, for want of its owner. So all kinds are listed for such an
// owner, and it is held while any of the lists fails, or while discovery has
// failed for types of which nothing is known. An owner that waits
// would only go before a dependent, which is collected in any case. For it,
// the kinds are listed of which the graph has seen dependents of such owners,
// and a list that fails does not hold it: one type that can't be read must not
// stop the foreground deletion of everything that it ever named (G-63,
// scenario 48).
//
// The watch's bookmarks would be cheaper, but come only once a minute.
type Barrier struct {
	graph   Graph
	sources Sources
	client  metadata.Interface
	observe func(...graph.Event)
	now     func() time.Time
	asked   chan struct{} // capacity 1: there are requests

	// Holds says that owners with a hold are asked about as well, on which another
	// collector lets their dependents go. It is set before the first use.
	Holds bool

	mu       sync.Mutex // covers what follows
	requests map[graph.ID]struct{}
	outcomes map[graph.ID]outcome
}

// Sources say where dependents may be.
type Sources struct {
	Catalog func() *catalog.Catalog // the types served now

	// Absent asks anew whether a kind that the catalog lacks is really served by
	// no version of its group.
	Absent func(context.Context, schema.GroupKind) (bool, error)
}

// outcome is what a round found out for one owner, and for one way of being
// deleted: a second DELETE that changes it begins anew.
type outcome struct {
	failure string
	orphans bool
	at      time.Time
}

// NewBarrier returns a Barrier that passes what it finds to observe.
func NewBarrier(g Graph, sources Sources, client metadata.Interface, observe func(...graph.Event), now func() time.Time) *Barrier {
	return &Barrier{
		graph: g, sources: sources, client: client, observe: observe, now: now,
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
// why. It is told once: what comes after needs a round of its own.
func (b *Barrier) Outcome(id graph.ID, orphans bool) (confirmed bool, failure string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.outcomes[id]
	delete(b.outcomes, id)
	if !ok || o.orphans != orphans || b.now().Sub(o.at) > confirmedFor {
		return false, ""
	}
	return o.failure == "", o.failure
}

// Round looks for dependents of all owners that were asked about, and returns
// those owners. Each that is still there, and has nothing new to wait for, has
// an outcome now.
func (b *Barrier) Round(ctx context.Context) []graph.ID {
	ids := b.take()
	began := b.now()
	owners := map[graph.ID]graph.View{}
	for _, id := range ids {
		if view, ok := b.graph.Look(id); ok && b.Concerns(view) {
			owners[id] = view
		}
	}
	failures := b.lookAll(ctx, b.places(owners))
	undiscovered := b.undiscovered()
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.outcomes, func(_ graph.ID, o outcome) bool { return began.Sub(o.at) > confirmedFor })
	for id, owner := range owners {
		if now, ok := b.graph.Look(id); !ok || !b.isLeft(now) {
			continue // the round itself has found what it waits for
		}
		o := outcome{orphans: b.orphans(owner), at: began}
		switch err := failures[id]; {
		case err != nil && (o.orphans || errors.Is(err, errLate)):
			o.failure = err.Error()
		case o.orphans && undiscovered != nil:
			o.failure = undiscovered.Error()
		}
		b.outcomes[id] = o
	}
	return ids
}

// isLeft reports whether an owner has nothing left to wait for, as far as the
// graph knows.
func (b *Barrier) isLeft(owner graph.View) bool {
	return b.orphans(owner) && owner.Dependents == 0 || owner.Waits() && owner.Blocking == 0
}

// Concerns reports whether there may be something to confirm of an owner.
func (b *Barrier) Concerns(owner graph.View) bool { return owner.Waits() || b.orphans(owner) }

// orphans reports whether no dependent of an owner must be missed.
func (b *Barrier) orphans(owner graph.View) bool {
	return owner.Orphans() || owner.Object.Terminating && owner.Object.Held && b.Holds
}

// lookAll looks at all places, and says for which owners that failed, and why.
func (b *Barrier) lookAll(ctx context.Context, plan map[place][]graph.View) map[graph.ID]error {
	var mu sync.Mutex // covers failures
	failures := map[graph.ID]error{}
	var group errgroup.Group
	group.SetLimit(barrierLists)
	for at, owners := range plan {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, barrierTimeout)
			defer cancel()
			if err := b.look(ctx, at, owners); err != nil {
				mu.Lock()
				defer mu.Unlock()
				for _, owner := range owners {
					if !errors.Is(failures[owner.ID], errLate) {
						failures[owner.ID] = err
					}
				}
			}
			return nil // one place says nothing about another
		})
	}
	_ = group.Wait() // always nil
	return failures
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
func (b *Barrier) places(owners map[graph.ID]graph.View) map[place][]graph.View {
	found := map[place][]graph.View{}
	for _, owner := range owners {
		for _, gk := range b.kinds(owner) {
			at := place{kind: gk, namespace: owner.Object.Namespace}
			found[at] = append(found[at], owner)
		}
	}
	return found
}

// kinds says of which kinds to look for dependents of an owner: those of which
// the graph has seen any of an owner of its kind, and for one that orphans all
// that there are.
func (b *Barrier) kinds(owner graph.View) []schema.GroupKind {
	kinds := slices.Clone(owner.DependentKinds)
	if !b.orphans(owner) {
		return kinds
	}
	for _, resource := range b.sources.Catalog().Collected() {
		if gk := resource.GroupKind(); !slices.Contains(kinds, gk) {
			kinds = append(kinds, gk)
		}
	}
	return kinds
}

// undiscovered says that there may be types that nobody knows of, whose objects may be
// dependents. A type that was known before discovery failed for it is listed.
func (b *Barrier) undiscovered() error {
	if unknown := b.sources.Catalog().Undiscovered(); len(unknown) != 0 {
		return fmt.Errorf("list all types for dependents: discovery has failed for %s, so its types are not known; repair or delete its APIService", unknown[0])
	}
	return nil
}

// look lists one place, and hands on the objects there that name one of the
// owners. No cluster-scoped object can have an owner in a namespace.
func (b *Barrier) look(ctx context.Context, at place, owners []graph.View) error {
	resource, served := b.sources.Catalog().Preferred(at.kind)
	switch {
	case !served:
		return b.makeSureIsAbsent(ctx, at.kind)
	case !resource.Namespaced && at.namespace != "":
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

// makeSureIsAbsent returns nil if a kind that the catalog lacks has no objects.
func (b *Barrier) makeSureIsAbsent(ctx context.Context, gk schema.GroupKind) error {
	absent, err := b.sources.Absent(ctx, gk)
	switch {
	case err != nil:
		return fmt.Errorf("list %s for dependents: %w", gk, err)
	case !absent:
		return fmt.Errorf("list %s for dependents: it is served, and not watched yet", gk)
	default:
		return nil
	}
}

// errLate says that a dependent is known to exist, or to have existed a moment
// ago, and that the graph does not have it.
var errLate = errors.New("it was listed as a dependent, and its watch says otherwise: one of them is late")

// takeIn hands a dependent on to the graph, and makes sure that it has it. The
// graph does not if its watch is somewhere else at the moment, say in the
// middle of a list; then nothing is confirmed.
func (b *Barrier) takeIn(dependent graph.Object, wanted map[types.UID]struct{}) error {
	b.observe(graph.Read{Object: dependent})
	view, ok := b.graph.Look(graph.IDOf(dependent.UID))
	if !ok || !namesAny(view.Object, wanted) {
		return fmt.Errorf("%s: %w", graph.Coordinates{Kind: dependent.Kind, Namespace: dependent.Namespace, Name: dependent.Name}, errLate)
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
