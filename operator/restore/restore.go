// Package restore plans how archived objects are created again: in which order, with which
// owner references, and without what only the old objects had.
//
// It rolls forward: the cluster has moved on, and restored objects have new UIDs. A plan is
// made from values and writes nothing; what is not known to be absent is not created.
package restore

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Key identifies what is or was at a place in the cluster.
type Key struct {
	schema.GroupKind
	Namespace, Name string
}

// String returns Kind.group namespace/name.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.GroupKind.String() + " " + k.Name
	}
	return k.GroupKind.String() + " " + k.Namespace + "/" + k.Name
}

// KeyOf returns the key of an object.
func KeyOf(o *unstructured.Unstructured) Key {
	return Key{o.GroupVersionKind().GroupKind(), o.GetNamespace(), o.GetName()}
}

// Presence says whether an object exists. The zero Presence is Unknown.
type Presence string

// The presences.
const (
	Unknown  Presence = ""         // it could not be read
	Absent   Presence = "Absent"   // the API server says that it does not exist
	Present  Presence = "Present"  // it exists
	Unserved Presence = "Unserved" // the API server does not serve its type, and can't create it
)

// Live is what is at a key now.
type Live struct {
	Presence Presence
	Object   *unstructured.Unstructured // if Present
	Reason   string                     // why it could not be read, or created, if Unknown or Unserved
}

// Input is what a plan is made from. The Plan does not share memory with it.
type Input struct {
	// Archived are the objects to restore, each with its former UID, from the newest to the
	// oldest. Of two with the same UID, and of two at the same place, the first counts.
	Archived []*unstructured.Unstructured

	// Live is what is at the keys that Keys returns. A key that is not there is Unknown.
	Live map[Key]Live

	// ServedFinalizers are the finalizers that a controller removes again. Others are left off.
	ServedFinalizers map[string]struct{}

	// Namespace is where objects of namespaces are restored. Empty: in their own.
	Namespace string

	// DropOwners restores objects without references to owners that neither exist nor are
	// restored. Without it, such an object is a conflict: it would be collected again.
	DropOwners bool

	// LeaveUnowned leaves such objects alone instead: that they were collected was right.
	LeaveUnowned bool

	// All also restores objects that their restored controllers create themselves, and Pods
	// that had finished.
	All bool

	// KeepAddresses restores Services with their cluster IPs and node ports. Without it, the
	// API server assigns new ones: others may have the old ones now.
	KeepAddresses bool
}

// A Plan is what a restore does, in the order of its steps.
type Plan struct {
	Steps     []Step
	Existing  []Existing // restored before
	Adopted   []Existing // created by restored controllers in their place, which are in Left
	Left      []Note     // left to the controllers that create them
	Conflicts []Note     // nothing is written while there are any
	Blocked   []Key      // objects below those with conflicts
	Warnings  []Note
}

// Existing is an object that was restored before, by its former UID.
type Existing struct {
	Key        Key
	FormerUID  types.UID
	CurrentUID types.UID
	After      FollowUp // that is still to be written; its status, only if there is none
}

// A Note is about one object. Message says what to do.
type Note struct {
	Key     Key
	Message string
}

// Build returns the plan for an input.
func Build(in Input) Plan {
	b := newBuilder(in)
	for _, uid := range b.order {
		b.visit(uid)
	}
	return b.plan
}

type mark int

const (
	visiting mark = iota + 1
	visited
)

type builder struct {
	Input
	archived  map[types.UID]*unstructured.Unstructured
	order     []types.UID
	marked    map[types.UID]mark
	restored  map[types.UID]struct{}        // former UIDs that the plan or an earlier restore covers
	current   map[types.UID]types.UID       // current UIDs of what was restored before
	left      map[types.UID]struct{}        // to their controllers
	blocked   map[types.UID]struct{}        // by a conflict, their own or that of an owner
	older     map[types.UID]struct{}        // than another object of their name, or below such
	conflicts map[Key]struct{}              // that were reported
	planned   map[Key]struct{}              // that the plan or an earlier restore covers
	defined   map[schema.GroupKind]struct{} // by CustomResourceDefinitions that are covered
	plan      Plan
}

func newBuilder(in Input) *builder {
	b := &builder{
		Input: in, archived: map[types.UID]*unstructured.Unstructured{}, marked: map[types.UID]mark{},
		restored: map[types.UID]struct{}{}, current: map[types.UID]types.UID{}, left: map[types.UID]struct{}{}, blocked: map[types.UID]struct{}{},
		older: map[types.UID]struct{}{}, conflicts: map[Key]struct{}{}, planned: map[Key]struct{}{}, defined: map[schema.GroupKind]struct{}{},
	}
	names := map[Key]struct{}{}
	for _, o := range in.Archived {
		uid := o.GetUID()
		if b.archived[uid] != nil {
			continue
		}
		if _, newer := names[KeyOf(o)]; newer {
			b.older[uid] = struct{}{}
		}
		names[KeyOf(o)] = struct{}{}
		b.archived[uid] = o
		b.order = append(b.order, uid)
	}
	slices.SortStableFunc(b.order, func(x, y types.UID) int { return compare(b.archived[x], b.archived[y]) })
	return b
}

// compare orders objects without a common owner: those that others are in come first.
func compare(x, y *unstructured.Unstructured) int {
	return cmp.Or(cmp.Compare(rank(x), rank(y)), strings.Compare(KeyOf(x).String(), KeyOf(y).String()))
}

func rank(o *unstructured.Unstructured) int {
	switch KeyOf(o).GroupKind {
	case namespaceKind, definitionKind:
		return 0
	case volumeKind, serviceAccountKind, secretKind, configMapKind:
		return 1
	case claimKind:
		return 2
	default:
		return 3
	}
}

// visit plans an object after its owners. In a cycle, the object that is reached again is
// treated as one that is not restored yet.
func (b *builder) visit(uid types.UID) {
	if b.marked[uid] != 0 {
		return
	}
	b.marked[uid] = visiting
	o := b.archived[uid]
	for _, ref := range o.GetOwnerReferences() {
		if b.archived[ref.UID] != nil && !adopts(ref, o) {
			b.visit(ref.UID)
		}
	}
	b.planObject(o)
	b.marked[uid] = visited
}

// target returns where an object is restored.
func (b *builder) target(o *unstructured.Unstructured) Key {
	key := KeyOf(o)
	if b.Namespace != "" && key.Namespace != "" {
		key.Namespace = b.Namespace
	}
	return key
}

// planObject plans one object, whose owners were planned.
func (b *builder) planObject(o *unstructured.Unstructured) {
	key, uid := b.target(o), o.GetUID()
	live := b.Live[key]
	if b.planExisting(o, key, live) {
		return
	}
	if message, ok := b.leave(o, key); ok {
		b.leaveTo(o, key, message)
		return
	}
	if at, problem := b.place(key, live); problem != "" {
		b.conflict(o, at, problem)
		return
	}
	refs, ok := b.owners(o, key)
	if !ok {
		return
	}
	step := Step{Key: key, FormerUID: uid, object: o.DeepCopy(), owners: refs}
	for _, message := range b.clean(&step) {
		b.warn(key, message)
	}
	b.cover(key, o)
	b.plan.Steps = append(b.plan.Steps, step)
}

// planExisting reports whether something that was restored is in the place of an object: a newer one of
// its name, the object itself, or what its restored controller has created.
func (b *builder) planExisting(o *unstructured.Unstructured, key Key, live Live) bool {
	uid := o.GetUID()
	if _, older := b.older[uid]; older {
		b.leaveTo(o, key, "is left out, as a newer object of this name is restored: use --uid to restore it instead")
		return true
	}
	restored := live.Presence == Present && isRestored(live.Object, o) && !isTerminating(live.Object)
	if !restored && !b.createdMeanwhile(o, live) {
		return false
	}
	b.cover(key, o)
	b.current[uid] = live.Object.GetUID()
	x := Existing{Key: key, FormerUID: uid, CurrentUID: live.Object.GetUID()}
	if restored {
		x.After = b.followUp(o, key)
		b.plan.Existing = append(b.plan.Existing, x)
		return true
	}
	b.plan.Adopted = append(b.plan.Adopted, x)
	b.plan.Left = append(b.plan.Left, Note{key, "is left as its restored controller has created it"})
	return true
}

func (b *builder) leaveTo(o *unstructured.Unstructured, key Key, message string) {
	b.left[o.GetUID()] = struct{}{}
	b.plan.Left = append(b.plan.Left, Note{key, message})
}

// cover notes that an object exists after the plan was carried out.
func (b *builder) cover(key Key, o *unstructured.Unstructured) {
	b.restored[o.GetUID()] = struct{}{}
	b.planned[key] = struct{}{}
	if key.GroupKind == definitionKind {
		group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
		b.defined[schema.GroupKind{Group: group, Kind: kind}] = struct{}{}
	}
}

// conflict reports a problem with what is at a key, once, because of which an object can't be
// restored.
func (b *builder) conflict(o *unstructured.Unstructured, at Key, message string) {
	b.blocked[o.GetUID()] = struct{}{}
	if own := b.target(o); own != at {
		b.plan.Blocked = append(b.plan.Blocked, own)
	}
	if _, reported := b.conflicts[at]; !reported {
		b.conflicts[at] = struct{}{}
		b.plan.Conflicts = append(b.plan.Conflicts, Note{at, message})
	}
}

func (b *builder) warn(key Key, message string) {
	b.plan.Warnings = append(b.plan.Warnings, Note{key, message})
}
