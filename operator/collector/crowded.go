package collector

import (
	"context"
	"math"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// An object is crowded if it has more owner references than graph.ManyOwners. Any user who
// may create a ConfigMap can invent thousands, each of which has to be read before the
// object is known to have no owner. So crowded objects have a queue and a worker of their
// own, which is idle most of the time: they are collected, but never at the expense of
// others.
const (
	// crowdedPause is how many times as long as it has worked the worker of crowded objects
	// pauses, so that it has a read in flight for a fifth of the time.
	crowdedPause = 4

	// minCrowdedPause is how long it pauses after a pass with the maximum number of reads,
	// which limits it to about a hundred reads per second.
	minCrowdedPause = 5 * time.Second

	// crowdedTurn is how long one object is worked on before the next namespace has its
	// turn. Proofs of absence are valid for longer, so that those of one turn add up.
	crowdedTurn = 8 * time.Minute

	// minParking and maxParking limit the backoff of objects with owners that could not all
	// be read in one turn.
	minParking = time.Minute
	maxParking = time.Hour
)

// ReconcileCrowded reconciles a crowded object as long as there is progress, at most for a
// turn. Only one worker may call it.
func (c *Collector) ReconcileCrowded(ctx context.Context, id graph.ID) (reconcile.Result, error) {
	end, left := c.options.Now().Add(crowdedTurn), math.MaxInt
	for {
		began, before := c.options.Now(), left
		result, err := c.Reconcile(ctx, id)
		left = c.parked.unread(id)
		c.options.Sleep(ctx, pauseAfter(c.options.Now().Sub(began), left != 0))
		if err != nil || left == 0 || left >= before || ctx.Err() != nil || c.options.Now().After(end) {
			return result, err
		}
	}
}

// pauseAfter returns how long the worker of crowded objects pauses after a pass.
func pauseAfter(took time.Duration, unread bool) time.Duration {
	if unread {
		return max(crowdedPause*took, minCrowdedPause)
	}
	return crowdedPause * took
}

// parked has the number of unread owners of crowded objects. The zero value is ready to use.
type parked struct {
	mu sync.Mutex // covers of
	of map[graph.ID]int
}

// update updates the number of unread owners of an object, and reports whether it has
// decreased.
func (p *parked) update(id graph.ID, facts decide.Facts) (progress bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, was := p.of[id]
	if facts.UnreadOwners == 0 && !facts.Object.Truncated {
		delete(p.of, id)
		return was
	}
	if p.of == nil {
		p.of = map[graph.ID]int{}
	}
	p.of[id] = facts.UnreadOwners
	return was && facts.UnreadOwners < before
}

// unread returns the number of unread owners of an object.
func (p *parked) unread(id graph.ID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[id]
}

// count returns the number of parked objects.
func (p *parked) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.of)
}

func (p *parked) forget(id graph.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, id)
}

func (p *parked) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.of)
}
