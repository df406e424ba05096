// Package completion determines when cascades complete: when a deleted object has no dependents left, and neither has
// any other object that was deleted in its cascade.
//
// It keeps the root of each cascade, and the owners in it that are being deleted or are gone and still have dependents. So
// its memory is bounded by what is in progress. The rest is in the graph, which is asked through View. The package
// reads nothing else, and reports nothing.
package completion

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

const (
	// MaxCascades is the maximum number of cascades that are tracked at the same time. Those beyond that, or beyond one of
	// the following bounds, are not tracked.
	MaxCascades = 10_000

	// MaxCascadesOfNamespace is the maximum number of cascades whose roots are in one namespace.
	MaxCascadesOfNamespace = 1_000

	// MaxOwners is the maximum number of owners in the tracked cascades.
	MaxOwners = 100_000

	// MaxOwnersOfNamespace is the maximum number of owners in the cascades of one namespace.
	MaxOwnersOfNamespace = 10_000

	// StalledAfter is how long a cascade may make no progress before it is reported as stalled.
	StalledAfter = 5 * time.Minute

	// maxRecent is the number of deleted objects without dependents that are remembered, and maxCompleted that of the roots
	// of completed cascades.
	maxRecent, maxCompleted = 2000, MaxCascades

	// maxStalledOwners is the number of owners of a cascade that is reported as stalled.
	maxStalledOwners = 10
)

// View is what the graph knows.
type View interface {
	// HasDependents reports whether an object has an owner reference to an object.
	HasDependents(graph.ID) bool

	// IsSeen reports whether an object is known to exist.
	IsSeen(graph.ID) bool

	// AbsentOwner returns an owner of an object that is known not to exist. One that exists by another name, or in another
	// namespace, than the reference says is not absent.
	AbsentOwner(graph.ID) (metav1.OwnerReference, bool)

	// Owners calls yield with each owner of an object until it returns false.
	Owners(id graph.ID, yield func(graph.ID) bool)
}

// cascade is a Cascade in progress.
type cascade struct {
	Cascade
	owners int // number of owners of the Tracker that belong to it
}

// owner is an owner that is being deleted or is gone and still has dependents.
type owner struct {
	uid types.UID
	of  *cascade
}

// usage is what is tracked of a namespace.
type usage struct{ cascades, owners int }

// Tracker follows cascades. The zero Tracker has none. It must not be used concurrently.
type Tracker struct {
	cascades map[types.UID]*cascade // by root
	owners   map[graph.ID]owner
	used     map[string]usage // by namespace

	// abandoned are the owners of cascades that were too large to be tracked: what belongs to these begins no other.
	abandoned map[graph.ID]struct{}

	// recent are objects that were deleted lately and had no dependents, in case that dependents are seen later: each type has
	// a watch of its own. And completed are the roots of cascades that have completed lately, in case that dependents of them
	// are created later. These continue the cascade, and they may refer to the root by another name or in another namespace.
	recent, completed memory

	// Untracked is the number of cascades that were not tracked, or not to their end, since there were too many or they had too
	// many owners.
	Untracked int
}

// Observe processes an event before it is applied to the graph.
func (t *Tracker) Observe(e graph.Event, in View, now time.Time) {
	switch e := e.(type) {
	case graph.Seen:
		t.seen(e.Object, in, now)
	case graph.Deleted:
		t.deleted(e.Object, in, now)
	}
}

func (t *Tracker) seen(o graph.Object, in View, now time.Time) {
	if len(t.owners) != 0 {
		t.released(o, in, now)
	}
	if !o.Terminating {
		return
	}
	id := graph.IDOf(o.UID)
	if _, known := t.owners[id]; known || !in.HasDependents(id) {
		return
	}
	if t.isAbandoned(o, true) {
		return
	}
	c := t.ofOwners(o)
	if c == nil {
		c = t.ofAbsentOwner(o, in, now)
	}
	if c == nil {
		c = t.begin(rootOf(o), now)
	}
	if c != nil {
		t.addOwner(c, o.UID)
	}
}

// isAbandoned reports whether an object belongs to a cascade that was too large.
func (t *Tracker) isAbandoned(o graph.Object, hasDependents bool) bool {
	if len(t.abandoned) == 0 {
		return false
	}
	if _, is := t.abandoned[graph.IDOf(o.UID)]; is {
		return true
	}
	is := slices.ContainsFunc(o.Owners, func(r metav1.OwnerReference) bool {
		_, of := t.abandoned[graph.IDOf(r.UID)]
		return of
	})
	if is && hasDependents {
		t.abandon(graph.IDOf(o.UID))
	}
	return is
}

func (t *Tracker) abandon(id graph.ID) {
	if t.abandoned == nil || len(t.abandoned) >= MaxOwners {
		t.abandoned = map[graph.ID]struct{}{}
	}
	t.abandoned[id] = struct{}{}
}

// released counts an object that has lost its reference to an owner in a cascade.
func (t *Tracker) released(o graph.Object, in View, now time.Time) {
	in.Owners(graph.IDOf(o.UID), func(id graph.ID) bool {
		of, tracked := t.owners[id]
		if !tracked || refersTo(o, of.uid) {
			return true
		}
		if of.of.Changed = now; !o.Terminating {
			of.of.Kept++
		}
		return false
	})
}

func refersTo(o graph.Object, owner types.UID) bool {
	return slices.ContainsFunc(o.Owners, func(r metav1.OwnerReference) bool { return r.UID == owner })
}

func (t *Tracker) deleted(o graph.Object, in View, now time.Time) {
	id := graph.IDOf(o.UID)
	hasDependents := in.HasDependents(id)
	if t.isAbandoned(o, hasDependents) {
		return
	}
	c := t.owners[id].of
	if c == nil {
		c = t.ofOwners(o)
	}
	if c == nil {
		c = t.ofAbsentOwner(o, in, now)
	}
	if c == nil && hasDependents {
		c = t.begin(rootOf(o), now)
	}
	if c == nil {
		t.recent.add(id, rootOf(o), maxRecent)
		return
	}
	c.Changed = now
	if o.UID != c.Root.UID && in.IsSeen(id) { // otherwise the event is the second one
		c.Deleted++
	}
	if hasDependents {
		t.addOwner(c, o.UID)
	} else {
		t.removeOwner(id)
	}
}

// ofOwners returns the cascade of an object's owners; nil if they are in none.
func (t *Tracker) ofOwners(o graph.Object) *cascade {
	for _, r := range o.Owners {
		if c := t.owners[graph.IDOf(r.UID)].of; c != nil {
			return c
		}
	}
	return nil
}

// ofAbsentOwner returns a new cascade that the deletion of an object's owner has begun, although that was not observed with
// dependents; nil if no owner is known to be absent. The owner has at least this dependent.
func (t *Tracker) ofAbsentOwner(o graph.Object, in View, now time.Time) *cascade {
	if len(o.Owners) == 0 {
		return nil
	}
	ref, absent := in.AbsentOwner(graph.IDOf(o.UID))
	if !absent {
		return nil
	}
	id := graph.IDOf(ref.UID)
	root, known := t.completed.roots[id]
	if !known {
		root, known = t.recent.roots[id]
	}
	if !known {
		root = Root{APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: o.Namespace, Name: ref.Name, UID: ref.UID}
	}
	c := t.begin(root, now)
	if c != nil {
		t.addOwner(c, ref.UID)
	}
	return c
}

// begin returns a new cascade; nil if there are too many.
func (t *Tracker) begin(root Root, now time.Time) *cascade {
	if len(t.cascades) >= MaxCascades || t.used[root.Namespace].cascades >= MaxCascadesOfNamespace {
		t.Untracked++
		return nil
	}
	return t.track(&cascade{Cascade: Cascade{Root: root, Began: now, Changed: now}})
}

func (t *Tracker) track(c *cascade) *cascade {
	if t.cascades == nil {
		t.cascades, t.owners, t.used = map[types.UID]*cascade{}, map[graph.ID]owner{}, map[string]usage{}
	}
	t.cascades[c.Root.UID] = c
	t.use(c, 1, 0)
	return c
}

// use changes what is tracked of the namespace of a cascade.
func (t *Tracker) use(c *cascade, cascades, owners int) {
	u := t.used[c.Root.Namespace]
	u.cascades, u.owners = u.cascades+cascades, u.owners+owners
	if t.used[c.Root.Namespace] = u; u == (usage{}) {
		delete(t.used, c.Root.Namespace)
	}
}

// end forgets a cascade and its owners.
func (t *Tracker) end(c *cascade) {
	if c.owners != 0 {
		for id, o := range t.owners {
			if o.of == c {
				t.removeOwner(id)
			}
		}
	}
	delete(t.cascades, c.Root.UID)
	t.use(c, -1, 0)
}

// addOwner adds an owner to a cascade. If there are too many, the cascade is not tracked any longer: without one of its
// owners, it would seem to have completed.
func (t *Tracker) addOwner(c *cascade, uid types.UID) {
	id := graph.IDOf(uid)
	if _, known := t.owners[id]; known {
		return
	}
	if len(t.owners) >= MaxOwners || t.used[c.Root.Namespace].owners >= MaxOwnersOfNamespace {
		t.Untracked++
		t.abandon(id)
		t.abandon(graph.IDOf(c.Root.UID))
		for id, o := range t.owners {
			if o.of == c {
				t.abandon(id)
			}
		}
		t.end(c)
		return
	}
	t.owners[id] = owner{uid, c}
	c.owners++
	t.use(c, 0, 1)
}

func (t *Tracker) removeOwner(id graph.ID) {
	if o, known := t.owners[id]; known {
		delete(t.owners, id)
		o.of.owners--
		t.use(o.of, 0, -1)
	}
}

// Check returns the cascades that have completed, and those that have stalled since the last call. A cascade that is
// continued by dependents that are created later completes again, with the same root.
func (t *Tracker) Check(in View, now time.Time) (completed, stalled []Cascade) {
	for id := range t.owners {
		if !in.IsSeen(id) && !in.HasDependents(id) {
			t.removeOwner(id)
		}
	}
	for _, c := range t.cascades {
		switch idle := now.Sub(c.Changed) >= StalledAfter; {
		case c.owners == 0:
			t.end(c)
			t.completed.add(graph.IDOf(c.Root.UID), c.Root, maxCompleted)
			completed = append(completed, c.Cascade)
		case idle && !c.Stalled:
			c.Stalled = true
			stalled = append(stalled, t.withOwners(c))
		case !idle:
			c.Stalled = false
		}
	}
	return sorted(completed), sorted(stalled)
}

// Len returns the number of cascades in progress.
func (t *Tracker) Len() int { return len(t.cascades) }

// All returns the cascades in progress with their owners, the oldest first.
func (t *Tracker) All() []Cascade {
	owners := map[*cascade][]types.UID{}
	for _, o := range t.owners {
		owners[o.of] = append(owners[o.of], o.uid)
	}
	all := make([]Cascade, 0, len(t.cascades))
	for _, c := range t.cascades {
		one := c.Cascade
		one.Owners = owners[c]
		slices.Sort(one.Owners)
		all = append(all, one)
	}
	return sorted(all)
}

// withOwners returns a cascade with some of its owners.
func (t *Tracker) withOwners(c *cascade) Cascade {
	one := c.Cascade
	for _, o := range t.owners {
		if o.of == c && len(one.Owners) < maxStalledOwners {
			one.Owners = append(one.Owners, o.uid)
		}
	}
	slices.Sort(one.Owners)
	return one
}

// Restore adds cascades that All has returned in another process, unless they are known.
func (t *Tracker) Restore(all []Cascade) {
	for _, c := range all {
		if t.cascades[c.Root.UID] != nil || len(t.cascades) >= MaxCascades || t.used[c.Root.Namespace].cascades >= MaxCascadesOfNamespace {
			continue
		}
		restored := &cascade{Cascade: c}
		restored.Owners = nil
		t.track(restored)
		for _, uid := range c.Owners {
			if t.cascades[c.Root.UID] == restored { // otherwise it has too many
				t.addOwner(restored, uid)
			}
		}
	}
}
