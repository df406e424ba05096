// Package memo holds what Gleaner remembers of an object, on the object itself:
// since when it has had no owner, and what a module left to remember.
//
// Annotations travel. A Deployment copies its own to its ReplicaSets, and backups
// restore them. So a memo names the object and the owner references that it is
// about. One that names others, or a time that can't be, says nothing, and is to
// be removed.
//
// Whoever may update an object may write an annotation. So a memo is signed, and one
// that is not signed with a key of the operator says nothing, either.
package memo

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

// Annotation is the name of the annotation that holds a memo.
const Annotation = "gleaner.dev/memo"

// Memo is what is remembered. The zero Memo remembers nothing.
type Memo struct {
	UID        types.UID `json:"uid"`
	References string    `json:"references"` // see Hash

	// OwnerlessSince is when the object was first seen to have no owner left; zero
	// for one that has, or never had any.
	OwnerlessSince time.Time `json:"ownerlessSince,omitzero"`

	// Propagation is what was decided of the dependents of an object that is being
	// deleted. While there is one, the object's finalizers of garbage collection
	// are ours, unless they say what nobody has decided or asked for before.
	Propagation *Propagation `json:"propagation,omitempty"`

	// Attempt counts how often its policies have been asked after a wait.
	Attempt int `json:"attempt,omitempty"`

	// State is what the policy left to remember, and Policy is whose it is.
	State  json.RawMessage `json:"state,omitempty"`
	Policy string          `json:"policy,omitempty"`
}

// Propagation is a decision on an object's dependents.
type Propagation struct {
	Policy    string `json:"policy"`
	Decision  string `json:"decision"`  // Background, Foreground or Orphan
	Requested string `json:"requested"` // what a client had asked for before
	Reason    string `json:"reason,omitempty"`

	Dependents []hostabi.DependentDecision `json:"dependents,omitempty"` // exceptions
}

// Fits reports whether objects of a group can have a memo. A write to a role or a
// binding that touches more than its owner references and finalizers is checked
// as if it gave all the rights in it.
func Fits(group string) bool { return group != "rbac.authorization.k8s.io" }

// New returns the memo of an object with these owner references, which has just
// been seen to have no owner.
func New(uid types.UID, refs []metav1.OwnerReference, now time.Time) Memo {
	return Memo{UID: uid, References: Hash(refs), OwnerlessSince: now.UTC().Truncate(time.Second)}
}

// Status is what the annotation of an object is worth. The zero Status is nothing.
type Status uint8

// The statuses.
const (
	Missing    Status = iota // there is no annotation
	Invalid                  // it is about another object, other references or an impossible time, or is not signed at all
	Unverified               // it is about the object, and is signed with none of the keys
	Valid
)

// Read returns the memo on an object if it is Valid, and what the annotation is worth.
func Read(o metav1.Object, now time.Time, keys statekey.Keys) (Memo, Status) {
	text, ok := o.GetAnnotations()[Annotation]
	if !ok {
		return Memo{}, Missing
	}
	var signed statekey.Signed
	var m Memo
	if json.Unmarshal([]byte(text), &signed) != nil || signed.Signature == "" || json.Unmarshal(signed.Data, &m) != nil {
		return Memo{}, Invalid
	}
	switch {
	case m.UID != o.GetUID() || m.References != Hash(o.GetOwnerReferences()) || !m.timely(o, now):
		return Memo{}, Invalid
	case !keys.Verify(subject(m), signed):
		return Memo{}, Unverified
	default:
		return m, Valid
	}
}

// Sign returns the value of the annotation that holds a memo.
func (m Memo) Sign(keys statekey.Keys) (string, error) {
	signed, err := keys.Sign(subject(m), m)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(signed)
	return string(text), err
}

func subject(m Memo) statekey.Subject { return statekey.Subject{Purpose: statekey.Memo, UID: m.UID} }

// timely reports whether its times can be: one that has a time has it between the
// object's creation and now, and one that has none is about a deletion.
func (m Memo) timely(o metav1.Object, now time.Time) bool {
	if m.OwnerlessSince.IsZero() {
		return o.GetDeletionTimestamp() != nil
	}
	return !m.OwnerlessSince.After(now) && !m.OwnerlessSince.Before(o.GetCreationTimestamp().Time)
}

// Equal reports whether two memos say the same.
func (m Memo) Equal(other Memo) bool { return m.String() == other.String() }

// String is the memo as JSON, which is what is signed.
func (m Memo) String() string {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Sprintf("{%q: %q}", "error", err) // state that is no JSON; it counts for nothing
	}
	return string(data)
}

// Hash tells lists of owner references apart, by what they claim.
func Hash(refs []metav1.OwnerReference) string {
	h := sha256.New()
	for _, ref := range refs {
		fmt.Fprintf(h, "%q %q %q %q\n", ref.UID, ref.APIVersion, ref.Kind, ref.Name)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
