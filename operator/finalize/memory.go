package finalize

import (
	"encoding/json"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
// says whose it is.
type notebook struct {
	UID types.UID         `json:"uid"`
	By  map[string]memory `json:"by"` // by entry of metadata.finalizers
}

// notebookOf reads what is remembered of an object. What is about another one, or
// can't be read, counts for nothing.
func notebookOf(o metav1.Object) notebook {
	var n notebook
	text, ok := o.GetAnnotations()[Annotation]
	if ok && json.Unmarshal([]byte(text), &n) == nil && n.UID == o.GetUID() && n.By != nil {
		return n
	}
	return notebook{UID: o.GetUID(), By: map[string]memory{}}
}

// mostAttempts is where counting ends: whoever may write the object may write any
// number.
const mostAttempts = 1 << 30

// memoryOf is what is remembered for one finalizer.
func memoryOf(o metav1.Object, entry string) memory {
	m := notebookOf(o).By[entry]
	m.Attempt = min(max(m.Attempt, 0), mostAttempts)
	return m
}

// with returns the annotation's value with another memory for one finalizer; nil if
// nothing is left to be remembered.
func (n notebook) with(entry string, m memory) (*string, error) {
	by := maps.Clone(n.By)
	if m.empty() {
		delete(by, entry)
	} else {
		by[entry] = m
	}
	if len(by) == 0 {
		return nil, nil
	}
	data, err := json.Marshal(notebook{n.UID, by})
	text := string(data)
	return &text, err
}
