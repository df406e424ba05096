package graph

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/selection"
)

// Object is the metadata of an object from a watch event or a read: everything that
// Gleaner keeps of it.
type Object struct {
	UID             types.UID
	ResourceVersion string
	Kind            schema.GroupVersionKind // in the version of the watch or read
	Namespace       string                  // "" for a cluster-scoped object
	Name            string
	Owners          []metav1.OwnerReference

	Terminating     bool // has a deletionTimestamp
	Foreground      bool // has the finalizer foregroundDeletion
	Orphan          bool // has the finalizer orphan
	Held            bool // has the finalizer Hold
	OtherFinalizers bool // has any other finalizer

	HasState bool // has a state annotation

	Truncated bool // has more than MaxOwners owners, of which the graph keeps only some

	// Selection says which selectors match the labels that the object has in this
	// resourceVersion, as far as they were evaluated. It is set by the creator of an event.
	Selection selection.Selection

	// Finalizers are all entries of metadata.finalizers, and Generation is
	// metadata.generation. The graph does not keep them: they are for consumers of events.
	Finalizers []string
	Generation int64
}

// Hold is the finalizer that keeps a deleted object until a policy has decided about
// its dependents.
const Hold = "gleaner.dev/hold"

// ObjectOf returns the part of meta that the graph keeps. The caller passes the kind,
// since list items and protobuf metadata may lack it. The Object shares meta's owner
// references and finalizers.
func ObjectOf(kind schema.GroupVersionKind, meta metav1.Object) Object {
	o := Object{
		UID:             meta.GetUID(),
		ResourceVersion: meta.GetResourceVersion(),
		Kind:            kind,
		Namespace:       meta.GetNamespace(),
		Name:            meta.GetName(),
		Owners:          meta.GetOwnerReferences(),
		Terminating:     meta.GetDeletionTimestamp() != nil,
		Finalizers:      meta.GetFinalizers(),
		Generation:      meta.GetGeneration(),
	}
	_, o.HasState = meta.GetAnnotations()[objectstate.Annotation]
	for _, f := range meta.GetFinalizers() {
		switch f {
		case metav1.FinalizerDeleteDependents:
			o.Foreground = true
		case metav1.FinalizerOrphanDependents:
			o.Orphan = true
		case Hold:
			o.Held = true
		default:
			o.OtherFinalizers = true
		}
	}
	return o
}

// Event is an observation of the cluster. The set is closed: every change of the graph is
// one of these, and is made by Graph.Apply.
type Event interface{ event() }

// Seen is an object that a watch or a list of its type delivered.
type Seen struct {
	Object Object

	// Metadata is all metadata of an object that a watch delivered while it waits for a finalizer
	// of another controller, or has a hold and a state annotation; nil otherwise. The graph does
	// not keep it: it is for consumers of events, which must not change it.
	Metadata *metav1.PartialObjectMetadata
}

// Read is an object that was read outside its type's watch. It is accepted only if its
// resourceVersion is newer than the last one the watch delivered: then the watch would
// also still deliver the object's deletion. An older one could bring back an object
// whose deletion was already delivered.
type Read struct{ Object Object }

// Labeled is the Selection of an object that was listed outside its type's watch. It is accepted
// only for the same resourceVersion, in which the labels are the same.
type Labeled struct {
	UID             types.UID
	ResourceVersion string
	Selection       selection.Selection
}

// Deleted is the deletion of an object that its type's watch delivered. It is the only
// event that proves a UID absent regardless of coordinates.
type Deleted struct {
	Object Object
	At     time.Time // when the event was received
}

// Listing starts a full list of a type, which Relisted completes. A list that is older
// than what the previous watch delivered comes from an API server whose storage was
// restored: its objects are accepted even if newer ones were known. The same holds for an
// object that is older than known although the known resourceVersion is not above the
// list's: the restored storage continues from a later revision.
//
// The first list of a type may be Streamed. Until it is complete no Read is accepted, as for a
// type that is not listed at all. If it fails, another Listing follows that is not Streamed.
type Listing struct {
	Kind            schema.GroupKind
	ResourceVersion string // of the list; "" if it is Streamed

	// Streamed is set if the objects are passed on while the list is received, before its
	// resourceVersion is known. That is only possible for a type without seen objects.
	Streamed bool

	// Incomparable is set if the resourceVersions of this type cannot be compared, as
	// for a type of an aggregated API server. Then the latest event of the watch is the
	// newest, and no Read is accepted.
	Incomparable bool
}

// Relisted completes a full list of a type: objects that are not in the list are no longer
// seen. They do not count as deleted.
type Relisted struct {
	Kind            schema.GroupKind
	ResourceVersion string // of the list
	Listed          map[ID]struct{}
}

// TypeGone means that a type is no longer served, or no longer watched. Its objects are no
// longer seen. They do not count as deleted.
type TypeGone struct{ Kind schema.GroupKind }

// Absent means that a live read has proved that no object with these coordinates and this
// UID exists. It applies to references that claim exactly the same.
type Absent struct {
	Claim Coordinates
	At    time.Time
}

// Interrupted means that the watch of a type has ended, even if it is only restarted.
// Proofs that objects of the type are gone are from before the interruption. The storage
// may since have been restored to an earlier state, in which the object exists.
type Interrupted struct {
	Kind schema.GroupKind
	At   time.Time // when it was noticed
}

// Expired drops all proofs by live reads from before a time, so that one wrong response
// does not have an effect forever.
type Expired struct{ Before time.Time }

func (Seen) event()        {}
func (Read) event()        {}
func (Labeled) event()     {}
func (Deleted) event()     {}
func (Listing) event()     {}
func (Relisted) event()    {}
func (TypeGone) event()    {}
func (Absent) event()      {}
func (Interrupted) event() {}
func (Expired) event()     {}

// Coordinates are what a reference claims of its owner. Namespace is the
// dependent's, also where the owner's type turns out to be cluster-scoped.
type Coordinates struct {
	UID       types.UID
	Kind      schema.GroupVersionKind
	Namespace string
	Name      string
}

// String returns Kind namespace/name.
func (c Coordinates) String() string {
	if c.Namespace == "" {
		return c.Kind.Kind + " " + c.Name
	}
	return c.Kind.Kind + " " + c.Namespace + "/" + c.Name
}
