package policies

import (
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Verb is a way to write an object.
type Verb string

// The ways to write an object.
const (
	VerbCreate Verb = "create"
	VerbDelete Verb = "delete"
	VerbPatch  Verb = "patch"
)

// Grants are what the module of a finalizer may ask for. The zero Grants are
// nothing.
type Grants struct {
	Read  []Reads
	Write []Writes
	HTTP  []HTTP
}

// Writes are resources that may be written.
type Writes struct {
	Reads
	Verbs []Verb
}

// HTTP are requests that may be sent, and what the host adds to them.
type HTTP struct {
	// URL is exact, or allows all that is below it with /* at its end. Its scheme,
	// host and port are exact in any case.
	URL     string
	Methods []string

	Headers map[string]SecretKey // by name: what the host adds
	Basic   *Basic
	SigV4   *SigV4
	CA      *Certificates

	// Addresses may be reached although they are not public.
	Addresses []netip.Prefix
}

// SecretKey names one entry of a Secret.
type SecretKey struct {
	types.NamespacedName
	Key string
}

// Basic is where a user name and a password are.
type Basic struct{ Username, Password SecretKey }

// SigV4 is how requests are signed (AWS Signature Version 4).
type SigV4 struct {
	Region, Service              string
	AccessKeyID, SecretAccessKey SecretKey
	SessionToken                 *SecretKey // nil: none
}

// Certificates is where certificates are, in PEM.
type Certificates struct {
	SecretKey
	ConfigMap bool // it names a ConfigMap in place of a Secret
}

// Finalizer is one Finalizer or ClusterFinalizer as it is in force. It is not
// changed any more.
type Finalizer struct {
	// Policy says which objects it is for, and who answers. Of its fields, those
	// that choose between policies mean nothing, and neither do Needs and OnFault:
	// the module is always shown the whole object, and a fault always keeps it.
	*Policy

	UID types.UID // of the resource

	// Entry is that of metadata.finalizers.
	Entry string

	Grants  Grants
	Attach  bool
	After   []string      // entries that must be gone first
	Removed bool          // the resource is being deleted
	Bodies  bool          // records keep them
	Longest time.Duration // that an object may wait, from its deletionTimestamp; 0: for ever

	// FreeAtDeadline and FreeAtRemoval take the finalizer off, whatever was left to
	// be done.
	FreeAtDeadline, FreeAtRemoval bool

	RetryInitial, RetryMax time.Duration
}

// Allows reports whether objects may be written in this way.
func (w Writes) Allows(verb Verb) bool { return slices.Contains(w.Verbs, verb) }

// Attaches reports whether the finalizer is put on objects ahead of time.
func (f *Finalizer) Attaches() bool {
	return f.Attach && f.Enforce && !f.Removed && f.Asker != nil
}

// Same reports whether two readings of a resource come to the same.
func (f *Finalizer) Same(other *Finalizer) bool {
	return f.UID == other.UID && f.Generation == other.Generation && f.Digest == other.Digest && f.Entry == other.Entry &&
		f.Removed == other.Removed && f.Attach == other.Attach && f.Asker == other.Asker && f.NotReady == other.NotReady
}
