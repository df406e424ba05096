package graph

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/memo"
)

// Object is what one watch event or one read says of an object: all that the
// collector ever keeps of it.
type Object struct {
	UID             types.UID
	ResourceVersion string
	Kind            schema.GroupVersionKind // with the version it was read by
	Namespace       string                  // "" for a cluster-scoped object
	Name            string
	Owners          []metav1.OwnerReference

	Terminating     bool // has a deletionTimestamp
	Foreground      bool // has the finalizer foregroundDeletion
	Orphan          bool // has the finalizer orphan
	Held            bool // has our own finalizer, Hold
	OtherFinalizers bool // has any finalizer beside those three

	Memo bool // has an annotation in which we remember something

	Truncated bool // has more owners than MaxOwners, which the graph does not keep

	// Finalizers are all entries of metadata.finalizers, and Generation is that of
	// the spec. The graph does not keep them: they are for whoever listens to events.
	Finalizers []string
	Generation int64
}

// Hold is our own finalizer. It keeps an object that is deleted until what is to
// become of its dependents has been decided.
const Hold = "gleaner.dev/hold"

// ObjectOf copies out of meta what the graph keeps. The kind is given by the
// caller, since list items and protobuf metadata may leave their own out. The
// Object shares meta's owner references and finalizers.
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
	_, o.Memo = meta.GetAnnotations()[memo.Annotation]
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

// Event is something learnt about the cluster. The set is closed: everything
// that changes the graph is one of these and comes in through Graph.Apply.
type Event interface{ event() }

// Seen is an object as a watch or a list of its type delivered it.
type Seen struct{ Object Object }

// Read is an object as a read outside the watch found it. It counts only when
// it is newer than all that the watch of its type has delivered: then the
// object's deletion, too, is still to come on that watch. An older one could
// bring back an object whose deletion has been and gone.
type Read struct{ Object Object }

// Deleted is the end of an object as its type's watch reported it. It is the
// only event that says so of a UID whatever its coordinates.
type Deleted struct {
	Object Object
	At     time.Time // when it was learnt
}

// Listing opens a full list of a type, which Relisted closes. A list that is
// older than what the watch before it delivered comes of an API server whose
// storage was restored: what it says of an object then counts, however new the
// object was before. So does what it has older than it was known by a resourceVersion
// that is not above the list's: the restored storage goes on from a later revision.
type Listing struct {
	Kind            schema.GroupKind
	ResourceVersion string // of the list

	// Incomparable says that nothing is known of how the resourceVersions of
	// this type follow each other, as for an aggregated API server's. What the
	// watch delivers last is then the newest, and no Read is news.
	Incomparable bool
}

// Relisted closes a full list of a type: what the graph has of that type and
// the list does not is no longer seen. It is not taken for deleted.
type Relisted struct {
	Kind            schema.GroupKind
	ResourceVersion string // of the list
	Listed          map[ID]struct{}
}

// TypeGone says that a type is no longer served, or no longer watched. Its
// objects are no longer seen; none is taken for deleted.
type TypeGone struct{ Kind schema.GroupKind }

// Absent says that a live read proved the object of these coordinates not to
// exist with this UID. It holds for references that claim exactly the same.
type Absent struct {
	Claim Coordinates
	At    time.Time
}

// Interrupted says that the watch of a type has ended, if only to begin anew.
// What proved until then that one of its objects is gone proved it of the
// storage that was watched. It may have been restored to an earlier state
// since, in which the object is.
type Interrupted struct {
	Kind schema.GroupKind
	At   time.Time // when it was noticed
}

// Expired drops every proof by live read from before a time, so that one wrong
// answer is not believed for ever.
type Expired struct{ Before time.Time }

func (Seen) event()        {}
func (Read) event()        {}
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

// String names the object for people, without its UID.
func (c Coordinates) String() string {
	if c.Namespace == "" {
		return c.Kind.Kind + " " + c.Name
	}
	return c.Kind.Kind + " " + c.Namespace + "/" + c.Name
}
