package retainer

import (
	"context"
	"iter"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/follow"
	"github.com/gleaner-dev/gleaner/operator/references"
)

// minRelist is the least time between two lists of a type that policies cause. A list takes at most a share of 1/maxShare of the time.
const minRelist = 5 * time.Second

// checkEvery is after how many more objects it is checked whether a policy selects too many.
const checkEvery = 256

// followed is a type whose objects are followed. It is the Sink of its Follower.
type followed struct {
	*Retainer
	kind     schema.GroupKind
	resource catalog.Resource
	cancel   context.CancelFunc
	done     chan struct{}

	// What follows is covered by the Retainer's mu.
	relist    chan struct{} // closed when all objects have to be listed again
	requested bool          // relist is closed, or will be
	began     time.Time     // of the last list
	took      time.Duration
	failure   string // why objects can't be read now, and may have changed without notice; "": they can

	seen    map[types.UID]struct{} // by the list in progress; nil: there is none
	plansOf map[*plan]bool         // for which it is
	uses    *uses                  // for which it is; nil: for none
}

// follow starts and stops followers, and returns those that have to be ended. The caller holds mu.
func (r *Retainer) follow(ctx context.Context, served *catalog.Catalog, wanted map[schema.GroupKind]bool) (ended []*followed) {
	for kind, f := range r.followed {
		if resource, is := served.Preferred(kind); !wanted[kind] || !is || resource.Version != f.resource.Version {
			ended = append(ended, f)
			delete(r.followed, kind)
			r.unlist(kind)
		}
	}
	for kind := range wanted {
		resource, is := served.Preferred(kind)
		if !is {
			continue
		}
		if f := r.followed[kind]; f != nil {
			f.listIfUnread()
			continue
		}
		f := &followed{Retainer: r, kind: kind, resource: resource, done: make(chan struct{})}
		r.followed[kind] = f
		following, cancel := context.WithCancel(ctx)
		f.cancel = cancel
		follower := follow.Follower{
			Lister: r.options.Lister, Client: r.options.Client, Resource: resource, Sink: f, Relist: f.nextRelist, MinRetry: minRetry, MaxRetry: maxRetry,
		}
		go func() {
			defer close(f.done)
			follower.Run(following)
		}()
	}
	return ended
}

// end stops the follower. The caller does not hold mu.
func (f *followed) end() {
	f.cancel()
	<-f.done
}

// unlist has a type listed again before anything is decided about its objects. The caller holds mu.
func (r *Retainer) unlist(kind schema.GroupKind) {
	for _, p := range r.plans {
		if p.kinds[kind] {
			p.unread[kind] = true
		}
	}
	if r.uses != nil && r.uses.kinds[kind] {
		r.uses.unread[kind] = true
	}
	if kind == namespaceKind {
		r.listed = false
	}
}

// nextRelist returns the channel of the next list.
func (f *followed) nextRelist() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.relist, f.requested = make(chan struct{}), false
	return f.relist
}

// listIfUnread has all objects listed again if they have to be for something. The caller holds mu.
func (f *followed) listIfUnread() {
	if f.seen != nil || f.requested || f.relist == nil || !f.isUnread() {
		return // a list is in progress, or begins soon; see Listed
	}
	f.requested = true
	relist := f.relist
	time.AfterFunc(max(minRelist, maxShare*f.took)-time.Since(f.began), func() { close(relist) })
}

func (f *followed) isUnread() bool {
	for _, p := range f.plans {
		if p.unread[f.kind] && p.problem == "" {
			return true
		}
	}
	return f.Retainer.uses != nil && f.Retainer.uses.unread[f.kind] || f.kind == namespaceKind && f.namespaces != nil && !f.listed
}

// Listing implements follow.Sink.
func (f *followed) Listing() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.began, f.seen, f.plansOf, f.uses = time.Now(), map[types.UID]struct{}{}, map[*plan]bool{}, nil
	for _, p := range f.plans {
		if p.kinds[f.kind] {
			f.plansOf[p] = true
		}
	}
	if u := f.Retainer.uses; u != nil && u.kinds[f.kind] {
		f.uses = u
	}
}

// Put implements follow.Sink.
func (f *followed) Put(o *unstructured.Unstructured) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen != nil {
		f.seen[o.GetUID()] = struct{}{}
	}
	f.put(o)
}

// of yields the policies that may select objects of a kind in a namespace. The caller holds mu.
func (r *Retainer) of(kind schema.GroupKind, namespace string) iter.Seq[*plan] {
	return func(yield func(*plan) bool) {
		for _, at := range [...]place{{kind, ""}, {kind, namespace}} {
			for _, p := range r.interested[at] {
				if !yield(p) {
					return
				}
			}
			if namespace == "" {
				return
			}
		}
	}
}

// put shows an object to all that are interested in it. The caller holds mu.
func (r *Retainer) put(o *unstructured.Unstructured) {
	now, kind := r.options.Now(), o.GroupVersionKind().GroupKind()
	changed := false
	for p := range r.of(kind, o.GetNamespace()) {
		if !p.overflowed.IsZero() {
			continue
		}
		if p.survey.Put(o) {
			p.change(now)
			changed = true
		}
		r.limit(p)
	}
	if r.uses != nil && r.uses.kinds[kind] && r.uses.put(o) {
		r.release(kind, o.GetNamespace())
		changed = true
	}
	if kind == namespaceKind && r.namespaces != nil {
		r.namespaces[o.GetName()] = namespaceLabels{o.GetUID(), o.GetLabels()}
		r.namespacesChanged()
		changed = true
	}
	if changed {
		signal(r.wake)
	}
}

// Gone implements follow.Sink.
func (f *followed) Gone(o *unstructured.Unstructured) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone(f.kind, o.GetNamespace(), o.GetUID())
	signal(f.wake)
}

// gone forgets an object. The caller holds mu.
func (r *Retainer) gone(kind schema.GroupKind, namespace string, uid types.UID) {
	for p := range r.of(kind, namespace) {
		p.forget(uid)
		if p.survey.Forget(uid) {
			p.change(r.options.Now())
		}
	}
	if r.uses != nil && r.uses.forget(kind, uid) {
		r.release(kind, namespace)
	}
	if kind == namespaceKind {
		for name, n := range r.namespaces {
			if n.uid == uid {
				delete(r.namespaces, name)
			}
		}
	}
}

// Listed implements follow.Sink.
func (f *followed) Listed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.options.Now()
	for p := range f.plansOf {
		if f.plans[p.Object.GetUID()] != p || !p.kinds[f.kind] {
			continue
		}
		for o := range p.survey.Of(f.kind) {
			if _, is := f.seen[o.UID]; !is {
				p.survey.Forget(o.UID)
			}
		}
		delete(p.unread, f.kind)
		p.change(now)
	}
	if u := f.uses; u != nil && u == f.Retainer.uses {
		u.listed(f.kind, f.seen, now, f.failure != "")
		f.release(f.kind, "")
	}
	if f.kind == namespaceKind && f.namespaces != nil {
		for name, n := range f.namespaces {
			if _, is := f.seen[n.uid]; !is {
				delete(f.namespaces, name)
			}
		}
		f.listed = true
		f.namespacesChanged()
	}
	f.seen, f.plansOf, f.uses, f.failure, f.took = nil, nil, nil, "", time.Since(f.began)
	signal(f.changed)
	f.listIfUnread()
	signal(f.wake)
}

// Failed implements follow.Sink. What was read before stays as it was: it is read again before anything is removed.
func (f *followed) Failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failure, f.seen, f.plansOf, f.uses = err.Error(), nil, nil, nil
	signal(f.changed)
	f.options.Log.Info("Could not read objects for retention policies, retrying", "resource", f.resource.Version.GroupResource().String(), "error", err.Error())
}

func (r *Retainer) namespacesChanged() {
	for _, p := range r.plans {
		if p.SelectsByNamespace() {
			p.change(r.options.Now())
		}
	}
}

// usesChanged has policies evaluated whose objects are used by others. The caller holds mu.
func (r *Retainer) usesChanged() {
	for _, of := range r.referred {
		for _, p := range of {
			p.change(r.options.Now())
		}
	}
}

// release passes on what the index of uses has released, and has policies evaluated whose objects a change of an object of a kind in a
// namespace concerns. The caller holds mu.
func (r *Retainer) release(kind schema.GroupKind, namespace string) {
	if namespace == "" || references.AcrossNamespaces(kind) {
		r.usesChanged()
	}
	now := r.options.Now()
	for _, p := range slices.Concat(r.referred[""], r.referred[namespace]) {
		p.change(now)
	}
	for _, reference := range r.uses.take() {
		for _, p := range slices.Concat(r.referred[""], r.referred[reference.Namespace]) {
			p.released.Add(reference)
			p.change(now)
		}
	}
}

// limit drops the objects of a policy that selects too many. The caller holds mu.
func (r *Retainer) limit(p *plan) {
	n := p.survey.Len()
	if n <= r.options.MaxObjects/maxOfNamespace || n%checkEvery != 0 || n <= r.options.MaxObjects && !r.exceeds(p) {
		return
	}
	r.clear(p)
	p.overflowed = r.options.Now()
	time.AfterFunc(overflowRetry, func() { r.recount(p.Object.GetUID()) })
}

// exceeds reports whether the policies of a namespace select too many objects together.
func (r *Retainer) exceeds(p *plan) bool {
	if p.Key.Namespace == "" {
		return false
	}
	total := 0
	for _, other := range r.plans {
		if other.Key.Namespace == p.Key.Namespace {
			total += other.survey.Len()
		}
	}
	return total > r.options.MaxObjects
}

// recount has the objects of a policy listed again, by a new plan: a list in progress has passed some to the one before.
func (r *Retainer) recount(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.plans[uid]
	if old == nil || old.overflowed.IsZero() {
		return
	}
	p := r.newPlan(old.Retention)
	p.inherit(old)
	p.problem = old.problem
	p.setKinds(old.kinds)
	r.plans[uid] = p
	r.setInterested()
	for kind := range p.kinds {
		if f := r.followed[kind]; f != nil {
			f.listIfUnread()
		}
	}
}
