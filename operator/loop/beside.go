package loop

import (
	"sync"
	"sync/atomic"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
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
	l.kept.mu.Lock()
	defer l.kept.mu.Unlock()
	delete(l.kept.of, id)
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
	resource, known := l.gatherer.Catalog().Preferred(o.Kind.GroupKind())
	return known && !set.Has(hostabi.HookCollect, resource.Version.GroupResource(), o.Namespace)
}

// company is what is known of the other collector. The zero company is nothing.
type company struct{ state atomic.Pointer[bool] }

// missing reports whether it is known that there is no other collector.
func (c *company) missing() bool {
	alive := c.state.Load()
	return alive != nil && !*alive
}

// AdviceAlone says what to do where there is no other collector.
const AdviceAlone = "start kube-controller-manager with its garbage-collector-controller (and --enable-garbage-collector), " +
	"or run Gleaner with --collector=primary"

// found notes whether there is another collector. Without one Gleaner goes on with
// what it does, which is right in itself; but nobody does the rest.
func (l *Loop) found(alive bool) {
	before := l.company.state.Swap(&alive)
	switch {
	case !alive && (before == nil || *before):
		l.log.Error(nil, "No other garbage collector is running: what no policy governs is not collected", "fix", AdviceAlone)
	case alive && before != nil && !*before:
		l.log.Info("Another garbage collector is running again")
	}
}
