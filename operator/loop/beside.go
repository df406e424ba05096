package loop

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
)

// kept are the objects that a policy has kept from the other collector. That one may
// come again for them only after a quarter of an hour, so they are ours until they
// have an owner, or are gone.
type kept struct {
	mu sync.Mutex // covers of
	of map[graph.ID]struct{}
}

func (k *kept) has(id graph.ID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.of[id]
	return ok
}

// note notes what was planned for an object.
func (k *kept) note(id graph.ID, s decide.Situation, j decide.Judgement, plan decide.Plan) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case s.Kind != decide.Ownerless:
		delete(k.of, id)
	case !j.Contested: // as it is before the policies have been read
	case plan.Reason == decide.PolicyAtFault, plan.Reason == decide.WaitsByPolicy, plan.Reason == decide.DelayedByPolicy:
		if k.of == nil {
			k.of = map[graph.ID]struct{}{}
		}
		k.of[id] = struct{}{}
	}
}

// forget forgets an object that is gone.
func (l *Loop) forget(id graph.ID) {
	l.waits.forget(id)
	l.parked.forget(id)
	l.parking.Forget(id)
	l.kept.mu.Lock()
	defer l.kept.mu.Unlock()
	delete(l.kept.of, id)
}

// refusable reports whether the API server asks about an object that the other
// collector wants to delete, be it governed or not. If nobody answered, or not soon
// enough, that one may not come again for a quarter of an hour.
func (l *Loop) refusable(o graph.Object) bool {
	if l.enforced(hostabi.HookCollect, o.Kind.GroupKind(), o.Namespace, func(*policies.Policy) bool { return true }) {
		return true
	}
	return slices.ContainsFunc(o.Owners, func(ref metav1.OwnerReference) bool { return l.overridden(ref, o.Namespace) })
}

// enforced reports whether there is such a policy on a kind whose word is carried out.
func (l *Loop) enforced(hook hostabi.Hook, kind schema.GroupKind, namespace string, such func(*policies.Policy) bool) bool {
	resource, ok := l.types().Preferred(kind)
	if !ok {
		return false
	}
	for p := range l.policiesInForce().For(hook, resource.Version.GroupResource(), namespace) {
		if p.Enforce && such(p) {
			return true
		}
	}
	return false
}

// leaves reports whether an object is left to the other collector, unread: no policy
// has a say about it, and there is nothing of ours on it.
func (l *Loop) leaves(id graph.ID) bool {
	set := l.policiesInForce()
	if !l.options.Beside || set == nil || l.kept.has(id) {
		return false
	}
	view, ok := l.known.Look(id)
	if !ok {
		return false
	}
	o := view.Object
	if o.Held || o.Memo || l.known.holds(o.Kind.GroupKind()) {
		return false
	}
	resource, known := l.types().Preferred(o.Kind.GroupKind())
	return known && !set.Has(hostabi.HookCollect, resource.Version.GroupResource(), o.Namespace) && !l.refusable(o)
}

// company is what is known of the other collector. The zero company is nothing.
type company struct {
	state  atomic.Pointer[bool]
	misses atomic.Int64  // canaries in a row that nobody finished
	ask    chan struct{} // capacity 1: let a canary out soon
}

// known reports whether it is known if there is another collector.
func (c *company) known() bool { return c.state.Load() != nil }

// missing reports whether it is known that there is no other collector.
func (c *company) missing() bool {
	alive := c.state.Load()
	return alive != nil && !*alive
}

// certain reports whether what a canary has shown is to be believed. Another collector that
// is just starting, or changing leaders, finishes none either: that there is none takes two
// canaries in a row.
func (c *company) certain(alive bool) bool {
	if alive {
		c.misses.Store(0)
		return true
	}
	return c.misses.Add(1) > 1
}

// AdviceAlone says what to do where there is no other collector.
const AdviceAlone = "start kube-controller-manager with its garbage-collector-controller (and --enable-garbage-collector), " +
	"or run Gleaner with --collector=primary"

// found notes whether there is another collector, which has finished a canary then, and
// whether the API server has asked about that. Without one Gleaner goes on with
// what it does, which is right in itself; but nobody does the rest.
func (l *Loop) found(ctx context.Context, alive bool, canary types.UID) {
	if alive {
		ctx, cancel := context.WithTimeout(ctx, hearing)
		defer cancel()
		l.keeper.Verify(ctx, canary)
	}
	before := l.company.state.Swap(&alive)
	if alive || before == nil || *before {
		l.keeper.Listen() // it may have shown who it is, or is to be told as missing
	}
	switch {
	case !alive && (before == nil || *before):
		l.log.Error(nil, "No other garbage collector is running: what no policy governs is not collected", "fix", AdviceAlone)
	case alive && before != nil && !*before:
		l.log.Info("Another garbage collector is running again")
	}
}

const (
	// hearing is how long a replica is given to tell of a canary that was finished.
	hearing = 2 * time.Second

	// firstSong is how long the API server is given to know of a new webhook before a canary
	// is let out. It doubles with each that was not heard of.
	firstSong = 250 * time.Millisecond

	// mostSongs is how often a canary is let out to be told who the other collector is,
	// before that is left to the next one that is let out anyway.
	mostSongs = 6
)

// askAround has a canary let out, if it is not known yet who the other collector is and
// the API server would tell by now.
func (l *Loop) askAround() {
	if l.keeper.IsVerified() {
		return
	}
	select {
	case l.company.ask <- struct{}{}:
	default: // it is about to be
	}
}

// hear lets canaries out until it is known who the other collector is.
func (l *Loop) hear(ctx context.Context) {
	for n := 0; n < mostSongs && ctx.Err() == nil && !l.keeper.IsVerified(); n++ {
		wait(ctx, firstSong<<n)
		if !l.sing(ctx) || l.company.missing() {
			return
		}
	}
	if ctx.Err() == nil && !l.keeper.IsVerified() {
		l.log.Error(nil, "The API server has not told who the other collector is: it may not reach the webhook", "assumed", l.keeper.CollectorUser(),
			"fix", "look for failed calls of webhooks in the API server's log; see the Service, and what of the network lies between")
	}
}
