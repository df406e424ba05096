package objectstate

import (
	"encoding/json"
	"errors"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/statekey"
)

// FinalizersAnnotation is the key of the state annotation of finalizers.
const FinalizersAnnotation = "gleaner.dev/finalizers"

// FinalizerState is the state of one finalizer on one object. The zero state is empty.
type FinalizerState struct {
	Attempt int             `json:"attempt,omitempty"`
	State   json.RawMessage `json:"state,omitempty"`

	// Failed is the reason of a Fail verdict, and Of the identity of its input.
	Failed      string `json:"failed,omitempty"`
	FailedInput string `json:"of,omitempty"`
}

// Empty reports whether there is no state to store.
func (m FinalizerState) Empty() bool { return m.Attempt == 0 && len(m.State) == 0 && m.Failed == "" }

// FinalizerStates is the content of the state annotation of finalizers. It names the object's UID, since
// annotations are copied to other objects. Each state is signed, since everyone who may
// write the object may write the annotation: a module, which may have more permissions
// than they have, receives only state that it wrote itself.
type FinalizerStates struct {
	UID     types.UID                  `json:"uid"`
	Entries map[string]json.RawMessage `json:"by"` // a statekey.Signed by entry of metadata.finalizers
}

// ReadFinalizers reads the state annotation of finalizers. An annotation that is invalid or
// names another object is treated as empty.
func ReadFinalizers(o metav1.Object) FinalizerStates {
	var n FinalizerStates
	text, ok := o.GetAnnotations()[FinalizersAnnotation]
	if ok && json.Unmarshal([]byte(text), &n) == nil && n.UID == o.GetUID() && n.Entries != nil {
		return n
	}
	return FinalizerStates{UID: o.GetUID(), Entries: map[string]json.RawMessage{}}
}

// maxAttempts is the maximum of the attempt counter.
const maxAttempts = 1 << 30

// ErrUnverified means that no key verifies the signature of a state.
var ErrUnverified = errors.New("state annotation is not signed with a known key")

// ReadFinalizer returns the state of one finalizer; unsigned state is ignored. The error is
// ErrUnverified if the state is signed with an unknown key.
func ReadFinalizer(o metav1.Object, entry string, keys statekey.Keys) (FinalizerState, error) {
	n := ReadFinalizers(o)
	signed, ok := parseSigned(n.Entries[entry])
	if !ok {
		return FinalizerState{}, nil
	}
	if !keys.Verify(n.subject(entry), signed) {
		return FinalizerState{}, ErrUnverified
	}
	var m FinalizerState
	if err := json.Unmarshal(signed.Data, &m); err != nil {
		return FinalizerState{}, nil //nolint:nilerr // signed by another version with another format
	}
	m.Attempt = min(max(m.Attempt, 0), maxAttempts)
	return m, nil
}

func (n FinalizerStates) subject(entry string) statekey.Subject {
	return statekey.Subject{Purpose: statekey.Finalizer, UID: n.UID, Name: entry}
}

// With returns the annotation's value with the state of one finalizer replaced; nil if
// no state is left.
func (n FinalizerStates) With(entry string, m FinalizerState, keys statekey.Keys) (*string, error) {
	entries := maps.Clone(n.Entries)
	delete(entries, entry)
	if !m.Empty() {
		signed, err := keys.Sign(n.subject(entry), m)
		if err != nil {
			return nil, err
		}
		if entries[entry], err = json.Marshal(signed); err != nil {
			return nil, err
		}
	}
	if len(entries) == 0 {
		return nil, nil
	}
	data, err := json.Marshal(FinalizerStates{n.UID, entries})
	text := string(data)
	return &text, err
}

// RemoveFinalizers returns the annotation's value without the states of some finalizers; nil
// if none is left. It needs no key, and does not check whose state it is.
func RemoveFinalizers(text string, match func(finalizer string) bool) *string {
	var n FinalizerStates
	if json.Unmarshal([]byte(text), &n) != nil {
		return nil // invalid
	}
	maps.DeleteFunc(n.Entries, func(finalizer string, _ json.RawMessage) bool { return match(finalizer) })
	if len(n.Entries) == 0 {
		return nil
	}
	data, err := json.Marshal(n)
	if err != nil {
		return nil
	}
	remaining := string(data)
	return &remaining
}

// FinalizerFailure returns the reason of a Fail verdict of one finalizer, for messages; "" if
// there is none. It needs no key: nothing is decided by it.
func FinalizerFailure(o metav1.Object, entry string) string {
	var m FinalizerState
	signed, ok := parseSigned(ReadFinalizers(o).Entries[entry])
	if !ok || json.Unmarshal(signed.Data, &m) != nil {
		return ""
	}
	return m.Failed
}
