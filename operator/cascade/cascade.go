// Package cascade determines what is left of a cascade. A cascade has the deleted objects, their dependents, the
// content of a deleted namespace, and the custom resources of a deleted CustomResourceDefinition.
//
// The package reads nothing. Its caller reports objects that exist and objects that are gone. An object that
// was not reported as gone is left.
package cascade

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// Root is a deleted object, or one that will be deleted.
type Root struct {
	graph.Object

	Gone      bool             // it no longer exists
	Contents  string           // for a Namespace: its name; the objects in it are deleted with it
	Instances schema.GroupKind // for a CustomResourceDefinition: the kind of the objects that are deleted with it
}

// contains reports whether an object is deleted with the root, regardless of its owners.
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
	inside types.UID // the root that contains it; "" if none does
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

// SeenAll reports that objects exist. Dependents may come before their owners.
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

// Seen reports that an object exists, with its metadata. It is added to the cascades if one of its owners is in
// them, or if a root contains it.
func (t *Tracker) Seen(o graph.Object) {
	if m := t.members[o.UID]; m != nil {
		if !m.gone { // otherwise the event is old
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

// index replaces the metadata of a member.
func (t *Tracker) index(m *member, o graph.Object) {
	for _, owner := range m.Owners {
		delete(t.below[owner.UID], m)
	}
	o.Kind = m.Kind // an equivalent resource may have another kind
	m.Object = o
	t.addBelow(m)
}

// Gone reports that an object no longer exists.
func (t *Tracker) Gone(uid types.UID) {
	if m := t.members[uid]; m != nil {
		t.setGone(m)
	}
}

// setGone marks an object as gone. The API server removes a CustomResourceDefinition after its objects, and may
// not send their last events, so these are gone, too.
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

// Listed reports all objects of a kind that exist in a namespace, or in all namespaces if it is "". Other
// objects of the kind are gone.
func (t *Tracker) Listed(kind schema.GroupKind, namespace string, exist map[types.UID]struct{}) {
	for _, m := range t.order {
		_, is := exist[m.UID]
		if !is && m.Kind.GroupKind() == kind && (namespace == "" || m.Namespace == namespace) {
			t.setGone(m)
		}
	}
}

// Members calls yield for each object of the cascades until it returns false.
func (t *Tracker) Members(yield func(graph.Object) bool) {
	for _, m := range t.order {
		if !yield(m.Object) {
			return
		}
	}
}

// Status is the progress of cascades.
type Status struct {
	Gone int            // number of objects that no longer exist
	Kept []graph.Object // objects that exist and will not be deleted by the cascades
	Left []Left         // all other objects, owners first
}

// Total returns the number of all objects.
func (s Status) Total() int { return s.Gone + len(s.Kept) + len(s.Left) }

// Done reports whether nothing is left.
func (s Status) Done() bool { return len(s.Left) == 0 }

// Left is an object that is still to be deleted or released.
type Left struct {
	graph.Object
	Depth   int
	Waiting Waiting
}

// Status returns the progress of the cascades.
//
// Roots, objects that a root contains, and terminating objects are left as long as they exist. A dependent
// is left if one of its owners in the cascades is gone or left: it will be deleted, or the garbage collector removes
// the owner reference. Other objects that exist are kept.
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

// Waiting is what an object waits for. The zero Waiting is its deletion.
type Waiting struct {
	For Cause

	Finalizers []string     // for Finalizers
	Object     graph.Object // for Dependents: one of them; for OwnerLeft and OwnerGone: the owner
	Others     int          // for Dependents: number of the others
}

// Cause is the kind of what an object waits for.
type Cause int

// The causes. If several apply, the first one after Deletion is reported.
const (
	Deletion   Cause = iota // its deletion, or the end of its grace period
	Finalizers              // finalizers other than those of garbage collection and Gleaner's hold
	Policy                  // the decision of a policy about its dependents
	Orphaning               // the orphaning of its dependents
	Dependents              // the deletion of blocking dependents
	OwnerLeft               // the deletion of an owner
	OwnerGone               // the garbage collector, which has not processed the deletion of an owner yet
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

// waitingForDependents returns the blocking dependents of an object in foreground deletion.
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

// waitingForOwner returns the owner that an object waits for if it is not terminating.
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
