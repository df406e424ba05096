// Package cascade knows what is left of a cascade: of the objects that were deleted, their
// dependents, the content of a deleted namespace, and the custom resources of a deleted definition.
//
// It is told what is seen of objects and reads nothing. An object is gone if it was seen to be:
// one that was not seen is left.
package cascade

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// Root is an object that was or will be deleted.
type Root struct {
	graph.Object

	Gone      bool             // it was deleted before
	Contents  string           // of a Namespace: its name; the objects in it are deleted with it
	Instances schema.GroupKind // of a CustomResourceDefinition: the kind; its objects are deleted with it
}

// contains reports whether an object is deleted with the root, whatever owners it has.
func (r Root) contains(o graph.Object) bool {
	return r.Contents != "" && o.Namespace == r.Contents || !r.Instances.Empty() && o.Kind.GroupKind() == r.Instances
}

// Tracker follows cascades. The zero Tracker has none. It must not be used concurrently.
type Tracker struct {
	roots   []Root
	members map[types.UID]*member
	order   []*member                          // as they were found, owners first
	below   map[types.UID]map[*member]struct{} // by owner
}

// member is an object of a cascade.
type member struct {
	graph.Object
	at     int // in the order
	depth  int
	root   bool
	inside types.UID // the root with which it is deleted, whatever owners it has; "" if there is none
	gone   bool
}

// New returns a Tracker of cascades among objects.
func New(roots []Root, objects []graph.Object) *Tracker {
	t := &Tracker{roots: roots, members: map[types.UID]*member{}, below: map[types.UID]map[*member]struct{}{}}
	for _, r := range roots {
		t.add(&member{Object: r.Object, root: true, gone: r.Gone})
	}
	t.SeenAll(objects)
	return t
}

// SeenAll tells that objects exist, in any order.
func (t *Tracker) SeenAll(objects []graph.Object) {
	owned := map[types.UID][]graph.Object{}
	for _, o := range objects {
		for _, owner := range o.Owners {
			owned[owner.UID] = append(owned[owner.UID], o)
		}
		if t.members[o.UID] != nil {
			t.Seen(o)
		}
		t.addInside(o)
	}
	for i := 0; i < len(t.order); i++ { // grows
		for _, o := range owned[t.order[i].UID] {
			t.Seen(o)
		}
	}
}

// Seen tells that an object exists, and as what. One that is no part of a cascade becomes one if an owner
// is, or if it is deleted with a root.
func (t *Tracker) Seen(o graph.Object) {
	if m := t.members[o.UID]; m != nil {
		if !m.gone { // an event that comes late makes nothing exist again
			t.index(m, o)
		}
		return
	}
	if t.addInside(o) {
		return
	}
	for _, owner := range o.Owners {
		if of := t.members[owner.UID]; of != nil {
			t.add(&member{Object: o, depth: of.depth + 1})
			return
		}
	}
}

// addInside adds an object that is deleted with a root.
func (t *Tracker) addInside(o graph.Object) bool {
	if t.members[o.UID] != nil {
		return false
	}
	for _, r := range t.roots {
		if r.contains(o) {
			t.add(&member{Object: o, depth: 1, inside: r.UID})
			return true
		}
	}
	return false
}

func (t *Tracker) add(m *member) {
	if t.members[m.UID] != nil {
		return
	}
	m.at = len(t.order)
	t.members[m.UID] = m
	t.order = append(t.order, m)
	t.addBelow(m)
}

func (t *Tracker) addBelow(m *member) {
	for _, owner := range m.Owners {
		if t.below[owner.UID] == nil {
			t.below[owner.UID] = map[*member]struct{}{}
		}
		t.below[owner.UID][m] = struct{}{}
	}
}

// index replaces what is known of a member.
func (t *Tracker) index(m *member, o graph.Object) {
	for _, owner := range m.Owners {
		delete(t.below[owner.UID], m)
	}
	o.Kind = m.Kind // it may be served as several
	m.Object = o
	t.addBelow(m)
}

// Gone tells that an object was seen to be deleted.
func (t *Tracker) Gone(uid types.UID) {
	if m := t.members[uid]; m != nil {
		t.setGone(m)
	}
}

// setGone notes that an object is gone. The API server removes a CustomResourceDefinition when its objects are
// gone, and then tells nothing about these any more.
func (t *Tracker) setGone(m *member) {
	m.gone = true
	if !m.root || !slices.ContainsFunc(t.roots, func(r Root) bool { return r.UID == m.UID && !r.Instances.Empty() }) {
		return
	}
	for _, d := range t.order {
		if d.inside == m.UID {
			d.gone = true
		}
	}
}

// Listed tells which objects of a kind exist in a namespace, or in all if it is "": others of that
// kind are gone.
func (t *Tracker) Listed(kind schema.GroupKind, namespace string, exist map[types.UID]struct{}) {
	for _, m := range t.order {
		_, is := exist[m.UID]
		if !is && m.Kind.GroupKind() == kind && (namespace == "" || m.Namespace == namespace) {
			t.setGone(m)
		}
	}
}

// Members calls with each object of the cascades, until it returns false.
func (t *Tracker) Members(with func(graph.Object) bool) {
	for _, m := range t.order {
		if !with(m.Object) {
			return
		}
	}
}

// Status is how far cascades are. The sum of the numbers is that of the objects.
type Status struct {
	Gone int
	Kept []graph.Object // they exist, and nothing deletes them any more
	Left []Left         // the rest; owners first
}

// Total returns the number of objects.
func (s Status) Total() int { return s.Gone + len(s.Kept) + len(s.Left) }

// Done reports whether nothing of the cascades is left.
func (s Status) Done() bool { return len(s.Left) == 0 }

// Left is an object of which a cascade is not done.
type Left struct {
	graph.Object
	Depth   int
	Waiting Waiting
}

// Status returns how far the cascades are.
//
// Not done are deleted objects and those that are deleted with them, and terminating objects, as long as
// they exist; and each object with a reference to an owner of the cascade that is gone or not done: it
// will be deleted, or a collector removes the reference. What else exists is kept.
func (t *Tracker) Status() Status {
	left := map[*member]bool{}
	var work []*member
	for _, m := range t.order {
		switch {
		case m.gone:
			work = append(work, m)
		case m.root, m.inside != "", m.Terminating:
			left[m] = true
			work = append(work, m)
		}
	}
	for len(work) != 0 {
		m := work[len(work)-1]
		work = work[:len(work)-1]
		for d := range t.below[m.UID] {
			if !d.gone && !left[d] {
				left[d] = true
				work = append(work, d)
			}
		}
	}
	var s Status
	for _, m := range t.order {
		switch {
		case m.gone:
			s.Gone++
		case left[m]:
			s.Left = append(s.Left, Left{Object: m.Object, Depth: m.depth, Waiting: t.waiting(m, left)})
		default:
			s.Kept = append(s.Kept, m.Object)
		}
	}
	return s
}

// Waiting is what an object waits for. The zero Waiting is that it is deleted.
type Waiting struct {
	For Cause

	Finalizers []string     // for Finalizers
	Object     graph.Object // for Dependents, one of them; for an owner, the owner
	Others     int          // for Dependents: how many there are besides Object
}

// Cause is the kind of what an object waits for.
type Cause int

// The causes, in the order in which one hides others.
const (
	Deletion   Cause = iota // nothing that can be seen in it: a grace period, or who deletes it has not yet
	Finalizers              // others than those of garbage collection
	Policy                  // the decision of a policy about its dependents
	Orphaning               // its dependents are to be orphaned
	Dependents              // dependents, since it is deleted in the foreground
	OwnerLeft               // an owner is to be deleted first
	OwnerGone               // a collector has not yet deleted it, or removed the reference
)

func (t *Tracker) waiting(m *member, left map[*member]bool) Waiting {
	if !m.Terminating {
		return t.waitingForOwner(m, left)
	}
	var others []string
	for _, f := range m.Finalizers {
		if f != metav1.FinalizerDeleteDependents && f != metav1.FinalizerOrphanDependents && f != graph.Hold {
			others = append(others, f)
		}
	}
	switch {
	case len(others) != 0:
		return Waiting{For: Finalizers, Finalizers: others}
	case m.Held:
		return Waiting{For: Policy}
	case m.Orphan:
		return Waiting{For: Orphaning}
	case m.Foreground:
		return t.waitingForDependents(m)
	}
	return Waiting{}
}

// waitingForDependents returns what an object waits for that is deleted in the foreground.
func (t *Tracker) waitingForDependents(m *member) Waiting {
	var first *member
	n := 0
	for d := range t.below[m.UID] {
		if d.gone || !blocks(d.Object, m.UID) {
			continue
		}
		if n++; first == nil || d.at < first.at {
			first = d
		}
	}
	if first == nil {
		return Waiting{For: Dependents}
	}
	return Waiting{For: Dependents, Object: first.Object, Others: n - 1}
}

// waitingForOwner returns what an object waits for that is not terminating.
func (t *Tracker) waitingForOwner(m *member, left map[*member]bool) Waiting {
	var w Waiting
	for _, ref := range m.Owners {
		owner := t.members[ref.UID]
		switch {
		case owner == nil:
		case left[owner]:
			return Waiting{For: OwnerLeft, Object: owner.Object}
		case owner.gone:
			w = Waiting{For: OwnerGone, Object: owner.Object}
		}
	}
	return w
}

// blocks reports whether an object has a blocking reference to an owner.
func blocks(o graph.Object, owner types.UID) bool {
	return slices.ContainsFunc(o.Owners, func(r metav1.OwnerReference) bool {
		return r.UID == owner && r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion
	})
}
