// Package retention decides about the objects of an API by the retention policies that select them.
//
// It is pure: objects come in as they are listed and change, and nothing but what decides about them is kept. What is removed comes out,
// in order, with the reason. The package reads nothing, and removes nothing: a component that does reads each object again before, and
// puts it in again if that has changed (P-13).
package retention

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/candidate"
	"github.com/gleaner-dev/gleaner/operator/retain"
)

// Policy is one retention policy. All fields but Options are required.
type Policy struct {
	Name    string // for people, and unique
	Rule    retain.Rule
	Options candidate.Options

	// Selects reports whether the policy selects an object. With an error, it is not known, and the object stays.
	Selects func(*unstructured.Unstructured) (bool, error)

	// SelectsNamespace reports whether the policy selects the objects of a namespace now; "" is that of cluster-scoped objects. It is
	// called for each evaluation. Nil: all are.
	SelectsNamespace func(name string) (bool, error)

	// OnlyFinished leaves objects out that have not finished.
	OnlyFinished bool
}

// of returns an object as a candidate, and whether the policy selects it.
func (p *Policy) of(o *unstructured.Unstructured) (candidate.Candidate, bool) {
	is, err := p.Selects(o)
	if !is && err == nil {
		return candidate.Candidate{}, false
	}
	c := candidate.Of(o, p.Options)
	if err != nil {
		c.Protected = fmt.Sprintf("whether it is selected is unknown: %s", err)
	}
	return c, err != nil || !p.OnlyFinished || !c.Unfinished
}

// Moment is what is known at the time of an evaluation, besides objects.
type Moment struct {
	Now  time.Time
	Uses candidate.Uses

	// Since is when uses began to be observed. Zero: they are not, and rules with MaxUnused remove nothing.
	Since time.Time
}

// Object is what is kept of an object.
type Object struct {
	Kind            schema.GroupVersionKind
	Namespace, Name string
	UID             types.UID
	ResourceVersion string // in which it was decided about
}

// String returns the object for people.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind.Kind + " " + o.Name
	}
	return fmt.Sprintf("%s %s/%s", o.Kind.Kind, o.Namespace, o.Name)
}

// Survey has the objects that one policy selects, and what was decided about them last. Create it with New. It must not be used
// concurrently.
type Survey struct {
	policy  Policy
	entries map[types.UID]*entry

	evaluated bool
	removes   map[types.UID]bool // by the last evaluation
}

// entry is an object that the policy selects.
type entry struct {
	Object
	candidate candidate.Candidate
	inUse     bool   // at the last evaluation
	unknown   string // why it is not known whether its namespace is selected
}

// New returns a Survey without objects.
func New(p Policy) *Survey { return &Survey{policy: p, entries: map[types.UID]*entry{}} }

// Put adds an object, or replaces what is kept of it: some hundred bytes if the policy selects it. It reports whether something that
// decides about it has changed.
func (s *Survey) Put(o *unstructured.Unstructured) (changed bool) {
	c, selected := s.policy.of(o)
	if !selected {
		return s.Forget(o.GetUID())
	}
	e := &entry{candidate: c, Object: Object{
		Kind: o.GroupVersionKind(), Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
	}}
	old, known := s.entries[e.UID]
	s.entries[e.UID] = e
	if !known {
		return true
	}
	e.inUse, e.candidate.LastUsed = old.inUse, old.candidate.LastUsed
	if e.candidate.Referred {
		e.candidate.Use = old.candidate.Use
	}
	return e.candidate != old.candidate
}

// Forget forgets an object, such as one that was deleted, and reports whether there was one.
func (s *Survey) Forget(uid types.UID) bool {
	_, known := s.entries[uid]
	delete(s.entries, uid)
	delete(s.removes, uid)
	return known
}

// Len returns the number of objects.
func (s *Survey) Len() int { return len(s.entries) }

// Of yields the objects of a kind, in no order. They may be forgotten meanwhile.
func (s *Survey) Of(kind schema.GroupKind) iter.Seq[Object] {
	return func(yield func(Object) bool) {
		for _, e := range s.entries {
			if e.Kind.GroupKind() == kind && !yield(e.Object) {
				return
			}
		}
	}
}

// Released says that something which referred to some objects does not any more: they were used until now.
func (s *Survey) Released(at time.Time, referred func(kind schema.GroupKind, namespace, name string) bool) {
	for _, e := range s.entries {
		if e.candidate.Referred && referred(e.Kind.GroupKind(), e.Namespace, e.Name) {
			e.candidate.LastUsed = at
		}
	}
}

// sorted returns all objects, by name.
func (s *Survey) sorted() []*entry {
	all := make([]*entry, 0, len(s.entries))
	for _, e := range s.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.Kind.Kind, b.Kind.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return all
}

// observe sets whether an object is used, and since when it is not (P-03).
func (e *entry) observe(at Moment) {
	if !e.candidate.Referred {
		return
	}
	e.candidate.Use = at.Uses.Of(e.Kind.GroupKind(), e.Namespace, e.Name)
	switch {
	case e.candidate.Use == retain.Used:
		e.inUse, e.candidate.LastUsed = true, at.Now
	case e.candidate.Use == retain.Unused && e.inUse:
		e.inUse, e.candidate.LastUsed = false, at.Now
	}
}
