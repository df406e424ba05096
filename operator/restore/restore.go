// Package restore plans how archived objects are created again: in which order, with which
// owner references, and without what only the old objects had.
//
// It rolls forward: the cluster has moved on, and restored objects have new UIDs. A plan is
// made from values and writes nothing; what is not known to be absent is not created.
package restore

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	Unknown Presence = ""        // it could not be read
	Absent  Presence = "Absent"  // the API server says that it does not exist
	Present Presence = "Present" // it exists
)

// Live is what is at a key now.
type Live struct {
	Presence Presence
	Object   *unstructured.Unstructured // if Present
}

// Input is what a plan is made from. The Plan does not share memory with it.
type Input struct {
	// Archived are the objects to restore, each with its former UID. Of two with the same UID,
	// the first counts.
	Archived []*unstructured.Unstructured

	// Live is what is at the keys of archived objects and of their owners, after Namespace was
	// applied. A key that is not there is Unknown.
	Live map[Key]Live

	// ServedFinalizers are the finalizers that a controller removes again. Others are left off.
	ServedFinalizers map[string]struct{}

	// Namespace is where objects of namespaces are restored. Empty: in their own.
	Namespace string

	// DropOwners restores objects without references to owners that neither exist nor are
	// restored. Without it, such an object is a conflict: it would be collected again.
	DropOwners bool

	// All also restores objects that their restored controllers create themselves.
	All bool
}

// A Plan is what a restore does, in the order of its steps.
type Plan struct {
	Steps     []Step
	Existing  []Existing // restored before
	Left      []Note     // left to the controllers that create them
	Conflicts []Note     // nothing is written while there are any
	Warnings  []Note
}

// Existing is an object that was restored before, by its former UID.
type Existing struct {
	Key        Key
	FormerUID  types.UID
	CurrentUID types.UID
}

// A Note is about one archived object. Message says what to do.
type Note struct {
	Key     Key
	Message string
}

// Build returns the plan for an input.
func Build(in Input) Plan {
	b := builder{Input: in, archived: map[types.UID]*unstructured.Unstructured{}, marked: map[types.UID]mark{}, restored: map[types.UID]struct{}{}, left: map[types.UID]struct{}{}}
	for _, o := range in.Archived {
		if uid := o.GetUID(); b.archived[uid] == nil {
			b.archived[uid] = o
			b.order = append(b.order, uid)
		}
	}
	slices.SortStableFunc(b.order, func(x, y types.UID) int { return b.compare(b.archived[x], b.archived[y]) })
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
	archived map[types.UID]*unstructured.Unstructured
	order    []types.UID
	marked   map[types.UID]mark
	restored map[types.UID]struct{} // former UIDs that the plan or an earlier restore covers
	left     map[types.UID]struct{} // to their controllers
	plan     Plan
}

// compare orders objects without a common owner: those that others are in come first.
func (b *builder) compare(x, y *unstructured.Unstructured) int {
	return cmp.Or(cmp.Compare(rank(x), rank(y)), strings.Compare(KeyOf(x).String(), KeyOf(y).String()))
}

func rank(o *unstructured.Unstructured) int {
	switch KeyOf(o).GroupKind {
	case schema.GroupKind{Kind: "Namespace"}, schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
		return 0
	case schema.GroupKind{Kind: "PersistentVolume"}, schema.GroupKind{Kind: "ServiceAccount"}, schema.GroupKind{Kind: "Secret"}, schema.GroupKind{Kind: "ConfigMap"}:
		return 1
	case schema.GroupKind{Kind: "PersistentVolumeClaim"}:
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
		if b.archived[ref.UID] != nil {
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
	switch live := b.Live[key]; {
	case live.Presence == Present && isRestored(live.Object, o):
		b.restored[uid] = struct{}{}
		b.plan.Existing = append(b.plan.Existing, Existing{key, uid, live.Object.GetUID()})
		return
	case live.Presence == Present:
		b.conflict(key, "an object of this name exists, with UID "+string(live.Object.GetUID())+
			": delete or rename it, or restore to another namespace")
		return
	case live.Presence != Absent:
		b.conflict(key, "whether an object of this name exists is not known: it could not be read")
		return
	}
	if owner, ok := b.recreatedBy(o); ok && !b.All {
		b.left[uid] = struct{}{}
		b.plan.Left = append(b.plan.Left, Note{key, fmt.Sprintf("is left to %s %s, which creates it: use --all to restore it as it was", owner.Kind, owner.Name)})
		return
	}
	refs, problem := b.owners(o, key)
	if problem != "" {
		b.conflict(key, problem)
		return
	}
	step := Step{Key: key, FormerUID: uid, object: o.DeepCopy(), owners: refs}
	for _, message := range clean(&step, b.ServedFinalizers) {
		b.warn(key, message)
	}
	b.restored[uid] = struct{}{}
	b.plan.Steps = append(b.plan.Steps, step)
}

func (b *builder) conflict(key Key, message string) {
	b.plan.Conflicts = append(b.plan.Conflicts, Note{key, message})
}

func (b *builder) warn(key Key, message string) {
	b.plan.Warnings = append(b.plan.Warnings, Note{key, message})
}

// recreatedBy returns the restored controller that creates an object itself.
func (b *builder) recreatedBy(o *unstructured.Unstructured) (metav1.OwnerReference, bool) {
	ref := metav1.GetControllerOf(o)
	if ref == nil {
		return metav1.OwnerReference{}, false
	}
	_, covered := b.restored[ref.UID]
	if _, left := b.left[ref.UID]; !covered && !left {
		return *ref, false
	}
	return *ref, createdByController[creation{GroupKind: schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind(), created: KeyOf(o).GroupKind}]
}

// A creation is a kind of controllers with a kind of objects that they create.
type creation struct {
	schema.GroupKind
	created schema.GroupKind
}

var createdByController = func() map[creation]bool {
	apps := func(kind string) schema.GroupKind { return schema.GroupKind{Group: "apps", Kind: kind} }
	batch := func(kind string) schema.GroupKind { return schema.GroupKind{Group: "batch", Kind: kind} }
	pod, revision := schema.GroupKind{Kind: "Pod"}, apps("ControllerRevision")
	return map[creation]bool{
		{apps("Deployment"), apps("ReplicaSet")}:               true,
		{apps("ReplicaSet"), pod}:                              true,
		{apps("StatefulSet"), pod}:                             true,
		{apps("StatefulSet"), revision}:                        true,
		{apps("DaemonSet"), pod}:                               true,
		{apps("DaemonSet"), revision}:                          true,
		{schema.GroupKind{Kind: "ReplicationController"}, pod}: true,
		{batch("CronJob"), batch("Job")}:                       true,
		{batch("Job"), pod}:                                    true,
		{schema.GroupKind{Kind: "Service"}, schema.GroupKind{Group: "discovery.k8s.io", Kind: "EndpointSlice"}}: true,
	}
}()

// owners returns the owner references that an object gets, with former UIDs; a problem if
// it would be collected again, or if that is not known.
func (b *builder) owners(o *unstructured.Unstructured, key Key) (refs []owner, problem string) {
	for _, ref := range o.GetOwnerReferences() {
		if _, covered := b.restored[ref.UID]; covered {
			refs = append(refs, owner{ref, true})
			continue
		}
		if b.marked[ref.UID] == visiting {
			b.warn(key, fmt.Sprintf("its owner %s %s is one of its own dependents: the reference is left off", ref.Kind, ref.Name))
			continue
		}
		presence := b.ownerPresence(ref, key)
		switch {
		case presence == Present:
			refs = append(refs, owner{ref, false})
		case presence != Absent:
			return nil, fmt.Sprintf("whether its owner %s %s exists is not known: it could not be read", ref.Kind, ref.Name)
		case b.DropOwners:
			b.warn(key, fmt.Sprintf("its owner %s %s neither exists nor is restored: the reference is left off", ref.Kind, ref.Name))
		default:
			problem = fmt.Sprintf("its owner %s %s neither exists nor is restored, so it would be collected again: restore the owner too, or use --drop-owners", ref.Kind, ref.Name)
		}
	}
	if len(refs) > 0 {
		return refs, "" // another owner keeps it; absent ones are left off
	}
	return nil, problem
}

// ownerPresence reports whether an owner exists with the UID that a reference has. One in another
// namespace than the restored object's does not count.
func (b *builder) ownerPresence(ref metav1.OwnerReference, key Key) Presence {
	gk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
	sure := 0
	for _, at := range []Key{{gk, key.Namespace, ref.Name}, {gk, "", ref.Name}} {
		live, asked := b.Live[at]
		switch {
		case live.Presence == Present && live.Object.GetUID() == ref.UID:
			return Present
		case asked && live.Presence != Unknown:
			sure++
		case asked:
			return Unknown
		}
	}
	if sure == 0 {
		return Unknown
	}
	return Absent
}
