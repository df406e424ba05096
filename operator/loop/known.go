package loop

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// known is the graph behind the one lock that it has, with the set of objects
// that are waiting to be looked at. It is the one door through which anything
// learnt comes in: by watching, by gathering or by acting.
type known struct {
	now func() time.Time

	mu      sync.Mutex // covers what follows
	graph   *graph.Graph
	add     func(graph.ID)                // into the work queue; nil until there is one
	leading bool                          // others only keep the graph
	led     time.Time                     // since when
	pending map[graph.ID]time.Time        // since when an object waits to be looked at
	inHand  map[graph.ID]time.Time        // the same of those that are looked at now
	refused map[graph.ID]struct{}         // objects whose last write failed: any change wakes them
	held    map[schema.GroupKind]struct{} // kinds of which objects are to have a hold, some of them at least
	own     map[graph.ID]struct{}         // our canaries, which we leave alone
	dirty   []graph.ID                    // scratch
}

func newKnown(now func() time.Time) *known {
	return &known{
		now:     now,
		graph:   graph.New(),
		pending: map[graph.ID]time.Time{},
		inHand:  map[graph.ID]time.Time{},
		refused: map[graph.ID]struct{}{},
		own:     map[graph.ID]struct{}{},
	}
}

// Apply takes events into the graph and queues what they concern.
func (k *known) Apply(events ...graph.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dirty = k.dirty[:0]
	for _, e := range events {
		before := len(k.dirty)
		k.dirty = k.graph.Apply(e, k.dirty)
		if _, absent := e.(graph.Absent); absent {
			k.dirty = append(k.dirty[:before], slices.DeleteFunc(k.dirty[before:], k.isInHand)...)
		}
		if len(k.refused) != 0 {
			k.wakeRefused(e)
		}
		k.wakeHolds(e)
	}
	for _, id := range k.dirty {
		k.queue(id)
	}
}

// isInHand reports whether an object is being looked at. It need not be told of
// an owner's absence: whoever looks at it finds that out, or looks again.
func (k *known) isInHand(id graph.ID) bool {
	_, ok := k.inHand[id]
	return ok
}

// wakeRefused has a refused write tried again as soon as its object changes,
// however long it would have had to wait (defect 3.28).
func (k *known) wakeRefused(e graph.Event) {
	seen, ok := e.(graph.Seen)
	if !ok {
		return
	}
	id := graph.IDOf(seen.Object.UID)
	if _, ok := k.refused[id]; ok {
		delete(k.refused, id)
		k.dirty = append(k.dirty, id)
	}
}

// wakeHolds has the hold of an object looked at that may have to be put there, or
// taken away.
func (k *known) wakeHolds(e graph.Event) {
	seen, ok := e.(graph.Seen)
	if !ok || seen.Object.Terminating {
		return
	}
	if _, governed := k.held[seen.Object.Kind.GroupKind()]; governed != seen.Object.Held {
		k.dirty = append(k.dirty, graph.IDOf(seen.Object.UID))
	}
}

// hold says of which kinds objects are to have a hold, and queues those of which
// it has changed, or may have.
func (k *known) hold(kinds map[schema.GroupKind]struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held = kinds
	k.queueHolds(func(governed, held bool) bool { return governed || held })
}

// queueHolds queues the objects whose hold is to be looked at, by whether their
// kind is governed and whether they have one.
func (k *known) queueHolds(which func(governed, held bool) bool) {
	for gk := range k.held {
		k.graph.OfKind(gk, func(id graph.ID, held bool) bool {
			if which(true, held) {
				k.queue(id)
			}
			return true
		})
	}
	k.graph.Holds(func(id graph.ID) bool {
		kind, _ := k.graph.PlaceOf(id)
		if _, governed := k.held[kind]; !governed && which(false, true) {
			k.queue(id)
		}
		return true
	})
}

// holds reports whether objects of a kind are to have a hold, some of them at least.
func (k *known) holds(gk schema.GroupKind) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, governed := k.held[gk]
	return governed
}

// place is where objects are that are counted.
type place struct {
	kind      schema.GroupKind
	namespace string
}

func (k *known) heldByPlace() map[place]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	counts := map[place]int{}
	k.graph.Holds(func(id graph.ID) bool {
		kind, namespace := k.graph.PlaceOf(id)
		counts[place{kind, namespace}]++
		return true
	})
	return counts
}

// ByKind counts an object's dependents.
func (k *known) ByKind(id graph.ID) []graph.KindCount {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.graph.ByKind(id)
}

// Dependents are the objects that name an object as their owner.
func (k *known) Dependents(id graph.ID) []graph.ID {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.graph.Dependents(id)
}

// queue has a seen object looked at. There is nothing to be done about another.
func (k *known) queue(id graph.ID) {
	if _, own := k.own[id]; own || !k.leading || k.add == nil || !k.graph.Sees(id) {
		return
	}
	if _, waits := k.pending[id]; !waits {
		k.pending[id] = k.now()
	}
	k.add(id)
}

// Look and Cycle read the graph for gathering.
func (k *known) Look(id graph.ID) (graph.View, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.graph.Look(id)
}

// Cycle is documented with Look.
func (k *known) Cycle(id graph.ID) (graph.Edge, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.graph.Cycle(id)
}

// namespaceOf returns the namespace that an object takes its turn for. It is
// called by what queue calls, under the lock.
func (k *known) namespaceOf(id graph.ID) string { return k.graph.NamespaceOf(id) }

// isHeldTerminating reports whether an object is being deleted, and has a hold.
func (k *known) isHeldTerminating(id graph.ID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.graph.HeldTerminating(id)
}

// owners returns how many owner references the graph has of an object.
func (k *known) owners(id graph.ID) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.graph.Owners(id)
}

// feed says where to queue what comes to ask for something.
func (k *known) feed(add func(graph.ID)) {
	k.mu.Lock()
	k.add = add
	k.mu.Unlock()
	k.sweep()
}

// lead has everything queued that now asks for something, and from then on
// whatever comes to ask.
func (k *known) lead() {
	k.mu.Lock()
	k.leading, k.led = true, k.now()
	k.mu.Unlock()
	k.sweep()
}

// leads reports whether this replica leads.
func (k *known) leads() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.leading
}

// leadsSince is since when this replica leads; zero: it does not.
func (k *known) leadsSince() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.leading {
		return time.Time{}
	}
	return k.led
}

// follow has nothing queued any more: a follower only keeps the graph.
func (k *known) follow() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.leading = false
	clear(k.pending)
	clear(k.refused)
}

// sweep queues every object that may ask for something: nothing is lost for
// longer than until the next one.
func (k *known) sweep() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.graph.Needs(func(id graph.ID) bool {
		k.queue(id)
		return true
	})
	k.queueHolds(func(governed, held bool) bool { return governed != held })
}

// again queues objects that somebody else has news about.
func (k *known) again(ids []graph.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		k.queue(id)
	}
}

// take notes that an object is being looked at. What is learnt of it from now
// on queues it again.
func (k *known) take(id graph.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if since, ok := k.pending[id]; ok {
		k.inHand[id] = since
		delete(k.pending, id)
	}
}

// settle notes that an object has been looked at, and whether its last write
// was refused.
func (k *known) settle(id graph.ID, refused bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.inHand, id)
	delete(k.refused, id)
	if refused {
		k.refused[id] = struct{}{}
	}
}

// ours sets a canary apart.
func (k *known) ours(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.own) // the one before is long gone
	k.own[graph.IDOf(uid)] = struct{}{}
}

// isOurs reports whether an object is our canary.
func (k *known) isOurs(id graph.ID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, own := k.own[id]
	return own
}

// oldest returns for how long the object that waits longest has waited; but for crowded
// ones, whose queue is always the last to be worked on.
func (k *known) oldest() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, age := k.now(), time.Duration(0)
	for _, waiting := range []map[graph.ID]time.Time{k.pending, k.inHand} {
		for id, since := range waiting {
			if k.graph.Owners(id) <= graph.ManyOwners {
				age = max(age, now.Sub(since))
			}
		}
	}
	return age
}

func (k *known) stats() graph.Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.graph.Stats()
}

func (k *known) waiting() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.pending) + len(k.inHand)
}
