// Package retention decides about the objects of an API by all retention policies that select them.
//
// It is pure: objects come in as they are listed and change, and nothing but what decides about them is kept. What is removed comes out,
// in order, with the policy and the reason. The package reads nothing, and removes nothing: a component that does reads each object again
// before, and puts it in again if that has changed (P-13).
package retention

import (
	"fmt"
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
}

// Moment is what is known at the time of an evaluation, besides objects.
type Moment struct {
	Now  time.Time
	Uses candidate.Uses

	// Since is when uses began to be observed, and LastUsed returns when an object was last used since then; zero: not. Without
	// LastUsed, rules with MaxUnused remove nothing.
	Since    time.Time
	LastUsed func(types.UID) time.Time
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

// Survey has all objects that policies select. Create it with New. It must not be used concurrently.
type Survey struct {
	policies []Policy
	entries  map[types.UID]*entry
}

// entry is an object that a policy selects.
type entry struct {
	Object
	of []selected
}

// selected is an object as the candidate of one policy.
type selected struct {
	policy    int // position in the Survey
	candidate candidate.Candidate
}

// New returns a Survey without objects.
func New(policies ...Policy) *Survey {
	return &Survey{policies: policies, entries: map[types.UID]*entry{}}
}

// Put adds an object, or replaces what is kept of it. That is some hundred bytes for each policy that selects it.
func (s *Survey) Put(o *unstructured.Unstructured) {
	e := &entry{Object: Object{
		Kind: o.GroupVersionKind(), Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
	}}
	for i, p := range s.policies {
		is, err := p.Selects(o)
		if !is && err == nil {
			continue
		}
		c := candidate.Of(o, p.Options)
		if err != nil {
			c.Protected = fmt.Sprintf("whether %s selects it is not known: %s", p.Name, err)
		}
		e.of = append(e.of, selected{i, c})
	}
	if len(e.of) == 0 {
		s.Forget(o.GetUID())
		return
	}
	e.of = slices.Clip(e.of)
	s.entries[o.GetUID()] = e
}

// Forget forgets an object, such as one that was deleted.
func (s *Survey) Forget(uid types.UID) { delete(s.entries, uid) }

// Len returns the number of objects.
func (s *Survey) Len() int { return len(s.entries) }

// view is what a policy selects, at the time of an evaluation.
type view struct {
	Policy
	candidates []retain.Candidate
	objects    []int // their positions among all objects
}

// views returns all objects, sorted, and what each policy selects of them.
func (s *Survey) views(at Moment) ([]Object, []*view) {
	all := make([]*entry, 0, len(s.entries))
	for _, e := range s.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entry) int { return compare(a.Object, b.Object) })
	views := make([]*view, len(s.policies))
	for i, p := range s.policies {
		views[i] = &view{Policy: p}
	}
	objects := make([]Object, len(all))
	for i, e := range all {
		objects[i] = e.Object
		for _, is := range e.of {
			c := is.candidate.Candidate
			if is.candidate.Referred {
				c.Use = at.Uses.Of(e.Kind.GroupKind(), e.Namespace, e.Name)
			}
			if at.LastUsed != nil {
				c.LastUsed = at.LastUsed(e.UID)
			}
			v := views[is.policy]
			v.candidates, v.objects = append(v.candidates, c), append(v.objects, i)
		}
	}
	return objects, views
}

// evaluate decides about what the policy selects.
func (v *view) evaluate(at Moment) retain.Plan {
	in := retain.Input{Candidates: v.candidates, Rule: v.Rule, Now: at.Now, Since: at.Since}
	if at.LastUsed == nil {
		in.Rule.MaxUnused = 0
	}
	return retain.Evaluate(in)
}
