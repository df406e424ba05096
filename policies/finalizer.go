package policies

import (
	"net/netip"
	"slices"
	"time"

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

// Finalizer is a Finalizer or ClusterFinalizer in force. It is immutable.
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
}

// Allows reports whether the rule allows a verb.
func (w WriteRule) Allows(verb Verb) bool { return slices.Contains(w.Verbs, verb) }

// Attaches reports whether the finalizer is added to objects in advance.
func (f *Finalizer) Attaches() bool {
	return f.Attach && f.Enforce && !f.Deleting && f.Evaluator != nil
}

// Equivalent reports whether two versions of a finalizer are equivalent.
func (f *Finalizer) Equivalent(other *Finalizer) bool {
	return f.UID == other.UID && f.Generation == other.Generation && f.Digest == other.Digest && f.Entry == other.Entry &&
		f.Deleting == other.Deleting && f.Attach == other.Attach && f.Evaluator == other.Evaluator && f.NotReadyReason == other.NotReadyReason
}
