package policies

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Verb is a verb by which an object is written.
type Verb string

// The verbs.
const (
	VerbCreate Verb = "create"
	VerbDelete Verb = "delete"
	VerbPatch  Verb = "patch"
)

// Grants are what the module of a finalizer may request. The zero Grants allow
// nothing.
type Grants struct {
	Read  []ReadRule
	Write []WriteRule
	HTTP  []HTTPRule
}

// WriteRule selects resources that may be written.
type WriteRule struct {
	ReadRule
	Verbs []Verb
}

// HTTPRule selects HTTP requests that may be sent, and defines what the host adds to
// them.
type HTTPRule struct {
	// URL is exact, or a prefix if it ends with /*. Scheme, host and port are
	// always exact.
	URL     string
	Methods []string

	Headers   map[string]SecretKey // added by the host, by name
	BasicAuth *BasicAuth
	SigV4     *SigV4
	CA        *CASource

	// Addresses are non-public addresses that may be reached.
	Addresses []netip.Prefix
}

// SecretKey refers to a key of a Secret.
type SecretKey struct {
	types.NamespacedName
	Key string
}

// BasicAuth refers to a user name and a password.
type BasicAuth struct{ Username, Password SecretKey }

// SigV4 configures request signing (AWS Signature Version 4).
type SigV4 struct {
	Region, Service              string
	AccessKeyID, SecretAccessKey SecretKey
	SessionToken                 *SecretKey // nil: none
}

// CASource refers to certificates in PEM format.
type CASource struct {
	SecretKey
	ConfigMap bool // a ConfigMap instead of a Secret
}

// Handler handles the objects of a built-in finalizer, in this process. Its methods may be called
// concurrently.
type Handler interface {
	// Handle is called for an object that is being deleted and has the finalizer. It returns
	// nil if the finalizer may be removed from the object in this state; if the object has
	// changed meanwhile, Handle is called again. After an error the object is kept, and
	// Handle is called again later. The message done is for records. The object must not be
	// changed.
	Handle(ctx context.Context, object *unstructured.Unstructured) (done string, err error)
}

// Finalizer is a Finalizer or ClusterFinalizer in force, or a built-in finalizer. It is immutable.
type Finalizer struct {
	// Policy defines the objects that the finalizer applies to, and its module.
	// Fields for precedence have no effect, nor does OnFault: a fault always keeps the
	// object.
	*Policy

	UID types.UID // of the resource

	// Entry is the entry in metadata.finalizers.
	Entry string

	Grants       Grants
	Attach       bool
	After        []string      // entries that must be removed first
	Deleting     bool          // the resource is being deleted
	RecordBodies bool          // records contain bodies
	Deadline     time.Duration // maximum wait of an object, from its deletionTimestamp; 0: no limit

	// ReleaseAtDeadline and ReleaseOnRemoval remove the finalizer even if its work is not
	// finished.
	ReleaseAtDeadline, ReleaseOnRemoval bool

	RetryInitial, RetryMax time.Duration

	// BuiltIn is set for a finalizer that Gleaner itself handles, such as those of archive
	// policies: by its Handler, and not by a module. Objects that it does not select, or no
	// longer, are released. Deleting its resource does not release objects that are being
	// deleted.
	BuiltIn bool

	// Handler handles the objects of a built-in finalizer. Nil while it is not ready; it may be
	// attached nevertheless.
	Handler Handler

	// Withdraw has a built-in finalizer removed from objects that are not being deleted.
	Withdraw bool
}

// Allows reports whether the rule allows a verb.
func (w WriteRule) Allows(verb Verb) bool { return slices.Contains(w.Verbs, verb) }

// Attaches reports whether the finalizer is added to objects in advance.
func (f *Finalizer) Attaches() bool {
	return f.Attach && f.Enforce && !f.Deleting && (f.BuiltIn || f.Evaluator != nil)
}

// Equivalent reports whether two versions of a finalizer are equivalent.
func (f *Finalizer) Equivalent(other *Finalizer) bool {
	return f.UID == other.UID && f.Generation == other.Generation && f.Digest == other.Digest && f.Entry == other.Entry &&
		f.Deleting == other.Deleting && f.Attach == other.Attach && f.Evaluator == other.Evaluator && f.NotReadyReason == other.NotReadyReason &&
		f.Withdraw == other.Withdraw && (f.Handler == nil) == (other.Handler == nil)
}
