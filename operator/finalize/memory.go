package finalize

import (
	"encoding/json"
	"errors"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/statekey"
)

// Annotation holds what is remembered of an object for its finalizers.
const Annotation = "gleaner.dev/finalizers"

// memory is what is remembered for one finalizer. The zero memory is nothing.
type memory struct {
	Attempt int             `json:"attempt,omitempty"`
	State   json.RawMessage `json:"state,omitempty"`

	// Failed is why the module has given up, and Of what it has given up on.
	Failed string `json:"failed,omitempty"`
	Of     string `json:"of,omitempty"`
}

func (m memory) empty() bool { return m.Attempt == 0 && len(m.State) == 0 && m.Failed == "" }

// notebook is what the annotation holds. Annotations travel to other objects, so it
// says whose it is. Whoever may write the object may write the annotation, so each
// memory is signed: a module that may do more than they may is shown no state but its
// own.
type notebook struct {
	UID types.UID                  `json:"uid"`
	By  map[string]json.RawMessage `json:"by"` // a statekey.Signed by entry of metadata.finalizers
}

// notebookOf reads what is remembered of an object. What is about another one, or
// can't be read, counts for nothing.
func notebookOf(o metav1.Object) notebook {
	var n notebook
	text, ok := o.GetAnnotations()[Annotation]
	if ok && json.Unmarshal([]byte(text), &n) == nil && n.UID == o.GetUID() && n.By != nil {
		return n
	}
	return notebook{UID: o.GetUID(), By: map[string]json.RawMessage{}}
}

// mostAttempts is where counting ends.
const mostAttempts = 1 << 30

// errUnverified is a memory that none of the keys has signed.
var errUnverified = errors.New("what is remembered of the object is signed with none of the keys")

// memoryOf is what is remembered for one finalizer. What is not signed is nothing; the
// error tells that there is something that is signed with another key than these.
func memoryOf(o metav1.Object, entry string, keys statekey.Keys) (memory, error) {
	n := notebookOf(o)
	var signed statekey.Signed
	if err := json.Unmarshal(n.By[entry], &signed); err != nil || signed.Signature == "" {
		return memory{}, nil //nolint:nilerr // what can't be read is not signed either, and is nothing
	}
	if !keys.Verify(n.subject(entry), signed) {
		return memory{}, errUnverified
	}
	var m memory
	if err := json.Unmarshal(signed.Data, &m); err != nil {
		return memory{}, nil //nolint:nilerr // signed by another version, which remembered something else
	}
	m.Attempt = min(max(m.Attempt, 0), mostAttempts)
	return m, nil
}

func (n notebook) subject(entry string) statekey.Subject {
	return statekey.Subject{Purpose: statekey.Finalizer, UID: n.UID, Name: entry}
}

// with returns the annotation's value with another memory for one finalizer; nil if
// nothing is left to be remembered.
func (n notebook) with(entry string, m memory, keys statekey.Keys) (*string, error) {
	by := maps.Clone(n.By)
	delete(by, entry)
	if !m.empty() {
		signed, err := keys.Sign(n.subject(entry), m)
		if err != nil {
			return nil, err
		}
		if by[entry], err = json.Marshal(signed); err != nil {
			return nil, err
		}
	}
	if len(by) == 0 {
		return nil, nil
	}
	data, err := json.Marshal(notebook{n.UID, by})
	text := string(data)
	return &text, err
}
