// Package objectstate reads and writes the state annotations, in which Gleaner keeps the state
// of an object on the object itself: since when it has had no owner, and the state that
// a module has returned, for policies and for each finalizer.
//
// Annotations get copied: a Deployment copies its own to its ReplicaSets, and backups
// restore them. So the state contains the object's UID and a hash of its owner
// references. State of another object, or with an impossible time, is ignored and
// removed.
//
// Any client that may update an object may write the annotation. So the state is signed,
// and state without a signature by one of the operator's keys is ignored.
package objectstate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/statekey"
)

// Annotation is the key of the state annotation.
const Annotation = "gleaner.dev/memo"

// State is the state of an object. The zero Memo is empty.
type State struct {
	UID            types.UID `json:"uid"`
	ReferencesHash string    `json:"references"` // see Hash

	// OwnersAbsentSince is when the object was first seen without an owner; zero if it has
	// one, or never had any.
	OwnersAbsentSince time.Time `json:"ownerlessSince,omitzero"`

	// Propagation is the decision about the dependents of an object that is being
	// deleted. If it is set, the object's garbage collection finalizers come from
	// Gleaner, unless they match neither the decision nor the earlier request.
	Propagation *Propagation `json:"propagation,omitempty"`

	// Attempt counts evaluations of its policies after a wait.
	Attempt int `json:"attempt,omitempty"`

	// ModuleState is the state that a module has returned, and Policy the policy it belongs to.
	ModuleState json.RawMessage `json:"state,omitempty"`
	Policy      string          `json:"policy,omitempty"`
}

// Propagation is a decision about an object's dependents.
type Propagation struct {
	Policy    string `json:"policy"`
	Decision  string `json:"decision"`  // Background, Foreground or Orphan
	Requested string `json:"requested"` // what the client had requested
	Reason    string `json:"reason,omitempty"`

	Dependents []hostabi.DependentDecision `json:"dependents,omitempty"` // decisions by kind
	Order      []hostabi.Wave              `json:"order,omitempty"`

	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"` // of everything below the object
}

// Supported reports whether objects of a group can have a state annotation. Roles and role
// bindings cannot: the API server treats a write to more than their owner references and
// finalizers as granting all permissions in them.
func Supported(group string) bool { return group != "rbac.authorization.k8s.io" }

// New returns the state of an object that has no owner since now.
func New(uid types.UID, refs []metav1.OwnerReference, now time.Time) State {
	return State{UID: uid, ReferencesHash: HashReferences(refs), OwnersAbsentSince: now.UTC().Truncate(time.Second)}
}

// Status is the result of checking the state annotation of an object.
type Status uint8

// The statuses.
const (
	Missing    Status = iota // the object has no state annotation
	Invalid                  // it is of another object or other owner references, has an impossible time, or is not signed
	Unverified               // it is of the object, but not signed with any of the keys
	Valid
)

// Read returns the state in an object's annotation, if it is Valid, and its status.
func Read(o metav1.Object, now time.Time, keys statekey.Keys) (State, Status) {
	text, ok := o.GetAnnotations()[Annotation]
	if !ok {
		return State{}, Missing
	}
	var m State
	signed, ok := parseSigned([]byte(text))
	if !ok || json.Unmarshal(signed.Data, &m) != nil {
		return State{}, Invalid
	}
	switch {
	case m.UID != o.GetUID() || m.ReferencesHash != HashReferences(o.GetOwnerReferences()) || !m.hasValidTime(o, now):
		return State{}, Invalid
	case !keys.Verify(subject(m), signed):
		return State{}, Unverified
	default:
		return m, Valid
	}
}

// parseSigned parses a document with a signature, which it does not verify.
func parseSigned(text []byte) (statekey.Signed, bool) {
	var signed statekey.Signed
	err := json.Unmarshal(text, &signed)
	return signed, err == nil && signed.Signature != ""
}

// Sign returns the state as the signed value of the annotation.
func (m State) Sign(keys statekey.Keys) (string, error) {
	signed, err := keys.Sign(subject(m), m)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(signed)
	return string(text), err
}

func subject(m State) statekey.Subject { return statekey.Subject{Purpose: statekey.Policy, UID: m.UID} }

// hasValidTime reports whether OwnersAbsentSince is possible: between the object's creation and
// now, or zero for an object that is being deleted.
func (m State) hasValidTime(o metav1.Object, now time.Time) bool {
	if m.OwnersAbsentSince.IsZero() {
		return o.GetDeletionTimestamp() != nil
	}
	return !m.OwnersAbsentSince.After(now) && !m.OwnersAbsentSince.Before(o.GetCreationTimestamp().Time)
}

// Equal reports whether two memos are equal.
func (m State) Equal(other State) bool { return m.String() == other.String() }

// String returns the JSON that is signed.
func (m State) String() string {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Sprintf("{%q: %q}", "error", err) // the module's state is not valid JSON; it is ignored
	}
	return string(data)
}

// HashReferences returns a hash of owner references by UID, type and name.
func HashReferences(refs []metav1.OwnerReference) string {
	h := sha256.New()
	for _, ref := range refs {
		fmt.Fprintf(h, "%q %q %q %q\n", ref.UID, ref.APIVersion, ref.Kind, ref.Name)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
