// Package completion determines when cascades complete: when a deleted object has no dependents left, and neither has
// any other object that was deleted in its cascade.
//
// It keeps the root of each cascade, and the owners in it that are being deleted or are gone and still have dependents. So
// its memory is bounded by what is in progress. The rest is in the graph, which is asked through View. The package
// reads nothing else, and reports nothing.
package completion

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

const (
	// MaxCascades and MaxOwners bound what is tracked at the same time. Cascades beyond that are not tracked.
	MaxCascades = 10_000
	MaxOwners   = 100_000

	// StalledAfter is how long a cascade may make no progress before it is reported as stalled.
	StalledAfter = 5 * time.Minute

	// maxRecent is the number of deleted objects without dependents that are remembered.
	maxRecent = 2000

	// maxStalledOwners is the number of owners of a cascade that is reported as stalled.
	maxStalledOwners = 10
)

// View is what the graph knows.
type View interface {
	// HasDependents reports whether an object has an owner reference to an object.
	HasDependents(graph.ID) bool

	// IsSeen reports whether an object is known to exist.
	IsSeen(graph.ID) bool

	// AbsentOwner returns an owner of an object that is known not to exist.
	AbsentOwner(graph.ID) (metav1.OwnerReference, bool)

	// Owners calls yield with each owner of an object until it returns false.
	Owners(id graph.ID, yield func(graph.ID) bool)
}

// Root is the object whose deletion began a cascade.
type Root struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
}

// String returns the kind and the name.
func (r Root) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Cascade is the progress of a cascade.
type Cascade struct {
	Root    Root      `json:"root"`
	Began   time.Time `json:"began"`   // when the deletion of the root was observed
	Changed time.Time `json:"changed"` // when the last object was deleted or released
	Deleted int       `json:"deleted"` // number of deleted objects, without the root
	Kept    int       `json:"kept"`    // number of dependents that were released from an owner in it and exist
	Stalled bool      `json:"stalled,omitempty"`

	// Owners are the objects in the cascade that are being deleted or are gone and still have dependents.
	Owners []types.UID `json:"owners,omitempty"`
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

// Tracker follows cascades. The zero Tracker has none. It must not be used concurrently.
type Tracker struct {
	cascades map[types.UID]*cascade // by root
	owners   map[graph.ID]owner

	// recent are objects that were deleted lately and had no dependents, in case that dependents are seen later: each type has
	// a watch of its own.
	recent map[graph.ID]Root
	queue  []graph.ID // of recent, the oldest first

	// Untracked is the number of cascades that were not tracked, since there were too many.
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
		t.remember(id, o)
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
	root, known := t.recent[graph.IDOf(ref.UID)]
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
	if len(t.cascades) >= MaxCascades || len(t.owners) >= MaxOwners {
		t.Untracked++
		return nil
	}
	if t.cascades == nil {
		t.cascades = map[types.UID]*cascade{}
	}
	c := &cascade{Cascade: Cascade{Root: root, Began: now, Changed: now}}
	t.cascades[root.UID] = c
	return c
}

func rootOf(o graph.Object) Root {
	apiVersion, kind := o.Kind.ToAPIVersionAndKind()
	return Root{APIVersion: apiVersion, Kind: kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}

// remember remembers a deleted object without dependents for a while.
func (t *Tracker) remember(id graph.ID, o graph.Object) {
	if t.recent == nil {
		t.recent = map[graph.ID]Root{}
	}
	if _, known := t.recent[id]; known {
		return
	}
	if len(t.queue) == maxRecent {
		delete(t.recent, t.queue[0])
		t.queue = t.queue[1:]
	}
	t.recent[id], t.queue = rootOf(o), append(t.queue, id)
}

func (t *Tracker) addOwner(c *cascade, uid types.UID) {
	id := graph.IDOf(uid)
	if _, known := t.owners[id]; known {
		return
	}
	if t.owners == nil {
		t.owners = map[graph.ID]owner{}
	}
	t.owners[id] = owner{uid, c}
	c.owners++
}

func (t *Tracker) removeOwner(id graph.ID) {
	if o, known := t.owners[id]; known {
		delete(t.owners, id)
		o.of.owners--
	}
}

// Check returns the cascades that have completed, which are forgotten, and those that have stalled since the last call.
func (t *Tracker) Check(in View, now time.Time) (completed, stalled []Cascade) {
	for id := range t.owners {
		if !in.IsSeen(id) && !in.HasDependents(id) {
			t.removeOwner(id)
		}
	}
	for uid, c := range t.cascades {
		switch idle := now.Sub(c.Changed) >= StalledAfter; {
		case c.owners == 0:
			delete(t.cascades, uid)
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
		if t.cascades[c.Root.UID] != nil || len(t.cascades) >= MaxCascades || len(t.owners)+len(c.Owners) > MaxOwners {
			continue
		}
		if t.cascades == nil {
			t.cascades = map[types.UID]*cascade{}
		}
		restored := &cascade{Cascade: c}
		restored.Owners = nil
		t.cascades[c.Root.UID] = restored
		for _, uid := range c.Owners {
			t.addOwner(restored, uid)
		}
	}
}

func sorted(all []Cascade) []Cascade {
	slices.SortFunc(all, func(a, b Cascade) int { return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.Root.UID, b.Root.UID)) })
	return all
}
