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
	"github.com/gleaner-dev/gleaner/operator/order"
)

const (
	// Between two rounds of the barrier there is a rest, at most maxRest, in which requests
	// gather. It is restFactor times as long as the round, so that owners deleted one after the
	// other do not wait, and rounds take at most a fifth of the time.
	restFactor = 4
	maxRest    = 250 * time.Millisecond

	// outcomeTTL is how long the outcome of a round is kept until the queue
	// processes the owner. It is used once.
	outcomeTTL = 30 * time.Second

	barrierPageSize    = 500
	barrierConcurrency = 8                // concurrent lists
	barrierTimeout     = 30 * time.Second // for one list with all its pages
)

// Barrier confirms, before the last finalizer of an owner is removed, that the owner has
// no dependent that the watch has not delivered yet (defects 3.16 and 3.17). All pending
// owners share one round: kinds that may have dependents are listed once per namespace,
// and the dependents found are added to the graph before the round has outcomes.
//
// A dependent of an owner that orphans must not be missed: it would be deleted later,
// when its owner is absent. So all kinds are listed for such an owner, and it is kept
// while any list fails. An owner in foreground deletion would at worst be deleted before a
// dependent, which is deleted in any case. For it, only kinds with known dependents of such
// owners are listed, and a failed list does not keep it: one type that cannot be read must
// not stop the foreground deletion of everything that it ever referenced (G-63,
// scenario 48).
//
// Bookmarks of the watch would be cheaper, but are only sent once a minute.
type Barrier struct {
	graph   Graph
	sources Sources
	client  metadata.Interface
	observe func(...graph.Event)
	now     func() time.Time
	pending chan struct{} // capacity 1: there are requests

	// IncludeHeld includes owners with a hold, whose dependents the built-in garbage collector
	// orphans. It must be set before first use.
	IncludeHeld bool

	// Order has the owners with dependents that are deleted in order: the kinds in it are listed. It
	// must be set before first use; nil means that none has.
	Order *order.Progress

	mu       sync.Mutex // covers what follows
	requests map[graph.ID]struct{}
	outcomes map[graph.ID]outcome
}

// Sources provide the types that dependents may have.
type Sources struct {
	Catalog func() *catalog.Catalog // the types served now

	// Absent reports, by a new discovery request, whether no version of the group serves
	// a kind that the catalog lacks.
	Absent func(context.Context, schema.GroupKind) (bool, error)

	// VerifyEmpty returns nil if a group version for which discovery has failed since the start
	// has no type that is collected. A nil Empty means that this is always unknown.
	VerifyEmpty func(context.Context, schema.GroupVersion) error
}

// outcome is the result of a round for one owner and its propagation policy. A second
// DELETE that changes the policy needs another round.
type outcome struct {
	failure string
	orphans bool
	at      time.Time
}

// NewBarrier returns a Barrier that passes the dependents it finds to observe.
func NewBarrier(g Graph, sources Sources, client metadata.Interface, observe func(...graph.Event), now func() time.Time) *Barrier {
	return &Barrier{
		graph: g, sources: sources, client: client, observe: observe, now: now,
		pending:  make(chan struct{}, 1),
		requests: map[graph.ID]struct{}{},
		outcomes: map[graph.ID]outcome{},
	}
}

// Request includes the object in the next round, which starts after this call.
func (b *Barrier) Request(id graph.ID) {
	b.mu.Lock()
	b.requests[id] = struct{}{}
	b.mu.Unlock()
	select {
	case b.pending <- struct{}{}:
	default:
	}
}

// Pending returns a channel that is readable when there are requests for a round.
func (b *Barrier) Pending() <-chan struct{} { return b.pending }

// Outcome reports whether a recent round has confirmed an owner that is being deleted
// with or without orphaning its dependents, or why the round failed.
func (b *Barrier) Outcome(id graph.ID, orphans bool) (confirmed bool, failure string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.outcomes[id]
	if !ok || o.orphans != orphans || b.now().Sub(o.at) > outcomeTTL {
		return false, ""
	}
	return o.failure == "", o.failure
}

// Consume forgets the outcome for an owner: it may be acted on once, and the next one needs
// another round.
func (b *Barrier) Consume(id graph.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.outcomes, id)
}

// RestAfter returns how long to wait after a round that took some time.
func RestAfter(round time.Duration) time.Duration { return min(restFactor*max(round, 0), maxRest) }

// RunRound lists the dependents of all requested owners, and returns those owners. Each one
// that still exists, and has no new dependents to wait for, has an outcome afterwards.
func (b *Barrier) RunRound(ctx context.Context) []graph.ID {
	ids := b.takeRequests()
	start := b.now()
	owners := map[graph.ID]graph.View{}
	for _, id := range ids {
		if view, ok := b.graph.Lookup(id); ok && b.NeedsConfirmation(view) {
			owners[id] = view
		}
	}
	failures := b.listAll(ctx, b.scopes(owners))
	b.checkUnknownTypes(ctx, owners, failures)
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.outcomes, func(_ graph.ID, o outcome) bool { return start.Sub(o.at) > outcomeTTL })
	for id, owner := range owners {
		if now, ok := b.graph.Lookup(id); !ok || !b.isUnblocked(now) {
			continue // the round has found dependents that it waits for
		}
		o := outcome{orphans: b.orphans(owner), at: start}
		if err := failures[id]; err != nil && (o.orphans || b.isOrdered(owner) || errors.Is(err, errWatchBehind)) {
			o.failure = err.Error()
		}
		b.outcomes[id] = o
	}
	return ids
}

// isUnblocked reports whether an owner has nothing to wait for, according to the graph.
func (b *Barrier) isUnblocked(owner graph.View) bool {
	return b.orphans(owner) && owner.Dependents == 0 || owner.Waits() && owner.Blocking == 0 || b.isOrdered(owner)
}

// NeedsConfirmation reports whether an owner may need confirmation.
func (b *Barrier) NeedsConfirmation(owner graph.View) bool {
	return owner.Waits() || b.orphans(owner) || b.isOrdered(owner)
}

// isOrdered reports whether the dependents of an owner are deleted in order.
func (b *Barrier) isOrdered(owner graph.View) bool {
	return owner.Object.Terminating && owner.Object.Held && b.Order != nil && b.Order.IsOrdered(owner.ID)
}

// orphans reports whether the dependents of an owner are orphaned, so that none must be
// missed.
func (b *Barrier) orphans(owner graph.View) bool {
	return owner.Orphans() || owner.Object.Terminating && owner.Object.Held && b.IncludeHeld && !b.isOrdered(owner)
}

// listAll lists all places, and returns the errors by owner.
func (b *Barrier) listAll(ctx context.Context, plan map[scope][]graph.View) map[graph.ID]error {
	var mu sync.Mutex // covers failures
	failures := map[graph.ID]error{}
	var group errgroup.Group
	group.SetLimit(barrierConcurrency)
	for at, owners := range plan {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, barrierTimeout)
			defer cancel()
			if err := b.listScope(ctx, at, owners); err != nil {
				mu.Lock()
				defer mu.Unlock()
				for _, owner := range owners {
					if !errors.Is(failures[owner.ID], errWatchBehind) {
						failures[owner.ID] = err
					}
				}
			}
			return nil // a failed scope does not affect others
		})
	}
	_ = group.Wait() // always nil
	return failures
}

func (b *Barrier) takeRequests() []graph.ID {
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := make([]graph.ID, 0, len(b.requests))
	for id := range b.requests {
		ids = append(ids, id)
	}
	clear(b.requests)
	return ids
}

// scope is a kind and a namespace to list; an empty namespace means all.
type scope struct {
	kind      schema.GroupKind
	namespace string
}

// scopes returns the places that may contain dependents of the owners, with those owners.
func (b *Barrier) scopes(owners map[graph.ID]graph.View) map[scope][]graph.View {
	found := map[scope][]graph.View{}
	for _, owner := range owners {
		for _, gk := range b.kinds(owner) {
			at := scope{kind: gk, namespace: owner.Object.Namespace}
			found[at] = append(found[at], owner)
		}
	}
	return found
}

// kinds returns the kinds to list for an owner: those with known dependents of owners of
// its kind, and for an owner that orphans all collected kinds.
func (b *Barrier) kinds(owner graph.View) []schema.GroupKind {
	kinds := slices.Clone(owner.DependentKinds)
	if b.isOrdered(owner) {
		for _, kind := range b.Order.Kinds(owner.ID) {
			if !slices.Contains(kinds, kind) {
				kinds = append(kinds, kind)
			}
		}
	}
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

// listScope lists one scope, and passes on the objects that reference one of the owners. A
// cluster-scoped object cannot have a namespaced owner.
func (b *Barrier) listScope(ctx context.Context, at scope, owners []graph.View) error {
	resource, served := b.sources.Catalog().Preferred(at.kind)
	switch {
	case !served:
		return b.verifyAbsent(ctx, at.kind)
	case !resource.Namespaced && at.namespace != "":
		return nil
	}
	wanted := map[types.UID]struct{}{}
	for _, owner := range owners {
		wanted[owner.Object.UID] = struct{}{}
	}
	client := b.client.Resource(resource.Version).Namespace(at.namespace)
	options := metav1.ListOptions{Limit: barrierPageSize}
	var late error
	for {
		page, err := client.List(ctx, options)
		if err != nil {
			return fmt.Errorf("list %s for dependents: %w", resource.Version.Resource, err)
		}
		for i := range page.Items {
			o := graph.ObjectOf(resource.GroupVersionKind(), &page.Items[i])
			if !referencesAny(o, wanted) {
				continue
			}
			if err := b.observeDependent(o, wanted); err != nil {
				late = err // reporting one of them is enough
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return late
		}
	}
}

// verifyAbsent returns nil if a kind that the catalog lacks has no objects.
func (b *Barrier) verifyAbsent(ctx context.Context, gk schema.GroupKind) error {
	absent, err := b.sources.Absent(ctx, gk)
	switch {
	case err != nil:
		return fmt.Errorf("list %s for dependents: %w", gk, err)
	case !absent:
		return fmt.Errorf("list %s for dependents: it is served, but not watched yet", gk)
	default:
		return nil
	}
}

// errWatchBehind means that a dependent exists, or existed a moment ago, but the graph does not
// have it.
var errWatchBehind = errors.New("it was listed as a dependent, but the watch does not show it: one of them is behind")

// observeDependent passes a dependent to the graph, and verifies that the graph has it. The graph
// does not if the watch of its type is in another state, for example in the middle of a
// list. Then nothing is confirmed.
func (b *Barrier) observeDependent(dependent graph.Object, wanted map[types.UID]struct{}) error {
	b.observe(graph.Read{Object: dependent})
	view, ok := b.graph.Lookup(graph.IDOf(dependent.UID))
	if !ok || !referencesAny(view.Object, wanted) {
		return fmt.Errorf("%s: %w", graph.Coordinates{Kind: dependent.Kind, Namespace: dependent.Namespace, Name: dependent.Name}, errWatchBehind)
	}
	return nil
}

func referencesAny(o graph.Object, wanted map[types.UID]struct{}) bool {
	for _, ref := range o.Owners {
		if _, ok := wanted[ref.UID]; ok {
			return true
		}
	}
	return false
}
