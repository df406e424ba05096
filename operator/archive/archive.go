// Package archive defines what is kept of deleted objects: entries, and the store that
// holds them. An Entry has a Header, which anyone who may read the store can read, and a
// body, the compressed object, which may be encrypted to recipients whose identities the
// operator does not have.
//
// It decides nothing about which objects are archived, and holds no policy. Stores are in
// packages of their own.
package archive

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Digest is the SHA-256 digest of a stored body, in hexadecimal: of the ciphertext if it is
// encrypted. Bodies with the same digest are stored once.
type Digest string

// Reference identifies an object, or a former one.
type Reference struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
}

// Cause is why an object was deleted, as far as is known.
type Cause struct {
	// By is what deleted the object: Gleaner, or Other for a user, another controller, the
	// namespace controller or the built-in garbage collector.
	By      Actor     `json:"by"`
	Reason  string    `json:"reason,omitempty"`  // of the decision
	Message string    `json:"message,omitempty"` // of the decision
	Policy  string    `json:"policy,omitempty"`  // that decided
	Root    types.UID `json:"root,omitempty"`    // the object whose deletion began the cascade
}

// Actor is what deleted an object.
type Actor string

// The actors.
const (
	ByGleaner Actor = "Gleaner"
	ByOther   Actor = "Other"
)

// Header describes an archived object. It contains nothing of the object but its
// coordinates and the identities of its owners.
type Header struct {
	ID              string      `json:"id"`   // assigned by Seal; unique, and ascending in time
	Time            time.Time   `json:"time"` // after 1970; set before Seal
	Object          Reference   `json:"object"`
	ResourceVersion string      `json:"resourceVersion"`
	Owners          []Reference `json:"owners,omitempty"` // in the object's namespace unless cluster-scoped

	// FormerOwners are references to owners that were deleted shortly before, in the same cascade,
	// as far as is known: collectors remove them while another owner is left.
	FormerOwners []metav1.OwnerReference `json:"formerOwners,omitempty"`

	Policies   []string  `json:"policies"` // the ArchivePolicies that selected it, as Kind namespace/name
	Cause      Cause     `json:"cause"`
	Expires    time.Time `json:"expires,omitzero"` // zero: never
	Content    Digest    `json:"content"`
	Size       int64     `json:"size"`                // of the stored body, in bytes
	Recipients int       `json:"recipients,omitzero"` // number of recipients that the body is encrypted to; 0: not encrypted
}

// Entry is an archived object.
type Entry struct {
	Header
	Body []byte // as it is stored: compressed, and encrypted if Recipients is not 0
}

// Query selects entries. The zero Query selects all.
type Query struct {
	UID           types.UID // of the object
	Root          types.UID // of its cascade
	Group         *string   // API group
	Kind          string
	Namespace     *string
	Name          string
	Since, Before time.Time // the time of the entry, Since inclusive and Before exclusive; zero: no limit
}

// Record is one durable decision record: opaque to the store but for its time and the UID
// of its object.
type Record struct {
	Time time.Time
	UID  types.UID
	JSON []byte
}

// Errors of stores, for errors.Is.
var (
	// ErrNotFound means that there is no such entry or body: it has expired, was pruned, or
	// was never there.
	ErrNotFound = errors.New("not in the archive")

	// ErrCorrupt means that a body or header does not have its checksum.
	ErrCorrupt = errors.New("corrupt")

	// ErrReadOnly means that the store was opened for reading, or another process writes it.
	ErrReadOnly = errors.New("read-only")

	// ErrFenced means that another writer has taken over since this one opened the store.
	ErrFenced = errors.New("another writer has taken over")

	// ErrTooLarge means that an object or an entry is above the size limit.
	ErrTooLarge = errors.New("too large")

	// ErrInUse means that another process writes the store, so it cannot be opened.
	ErrInUse = errors.New("in use")

	// ErrIdentity means that a body is encrypted, and that no given identity can decrypt it.
	ErrIdentity = errors.New("no matching identity")
)

// Usage is what a store holds.
type Usage struct {
	Entries int64
	Records int64
	Bytes   int64     // of bodies and records, as stored
	Oldest  time.Time // of all entries; zero: there is none
}

// Reader reads a store. Its methods may be called concurrently.
type Reader interface {
	// Headers calls yield for the headers that a query selects, newest first, until that
	// returns false. Headers that are corrupt are skipped, and the error at the end is
	// ErrCorrupt.
	Headers(ctx context.Context, q Query, yield func(Header) bool) error

	// Body returns the body of an entry. The error is ErrNotFound or ErrCorrupt, or that of
	// the storage.
	Body(ctx context.Context, h Header) ([]byte, error)

	// Records calls yield for the records of a period, oldest first, until that returns
	// false. An empty uid means all objects; zero times mean no limit. Records that are
	// corrupt are skipped, and the error at the end is ErrCorrupt.
	Records(ctx context.Context, uid types.UID, since, before time.Time, yield func(Record) bool) error

	Usage(ctx context.Context) (Usage, error)
	Close() error
}

// Store is a Reader that is also written, by one process at a time.
type Store interface {
	Reader

	// Put stores entries: all of them, or none. When it returns nil they are durable, and can
	// be read back after a crash. Entries that are stored already are left as they are.
	// Concurrent calls are committed together. After an error they may still be stored.
	Put(ctx context.Context, entries ...Entry) error

	// Append stores records. They are durable when it returns nil.
	Append(ctx context.Context, records ...Record) error

	// Expire removes the entries and records whose time has come, and the oldest ones above
	// the limits, always whole. It returns how many it removed of each.
	Expire(ctx context.Context, now time.Time, limits Limits) (entries, records int64, err error)

	// Remove removes entries by their IDs, with bodies that no other entry has, and returns how many it removed.
	// Those that are not there are skipped.
	Remove(ctx context.Context, ids ...string) (entries int64, err error)
}

// Limits bound what a store keeps. Zero fields are no limit.
type Limits struct {
	MaxBytes  int64         // of all bodies and records together; the oldest are removed first
	RecordTTL time.Duration // of records
}
