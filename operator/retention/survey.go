// Package retention decides about the objects of an API by all retention policies that select them.
//
// It is pure: objects come in one after the other, and nothing but what decides about them is kept, so that a hundred thousand
// objects can be listed page by page. What is removed comes out, in order, with the policy and the reason. The package reads nothing,
// and removes nothing: a component that does reads each object again before, and starts over if that has changed (P-13).
package retention

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/candidate"
	"github.com/gleaner-dev/gleaner/operator/retain"
)

// Policy is one retention policy. All fields but Memory are required.
type Policy struct {
	Name    string // for people, and unique
	Rule    retain.Rule
	Options candidate.Options

	// Selects reports whether the policy selects an object. With an error, it is not known, and the object stays.
	Selects func(*unstructured.Unstructured) (bool, error)

	// Memory is what is remembered of uses, if the rule has MaxUnused; without it, such a rule removes nothing.
	Memory *Memory
}

// Memory is what is remembered of the uses of objects.
type Memory struct {
	Since    time.Time                 // when uses began to be observed
	LastUsed func(types.UID) time.Time // zero: no use was observed since then
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

// Survey is all objects that policies select at one time. Create it with New. It must not be used concurrently.
type Survey struct {
	now      time.Time
	policies []*selected
	objects  []Object
	known    map[types.UID]bool
}

// selected is what one policy selects.
type selected struct {
	Policy
	candidates []retain.Candidate
	objects    []int // their positions in the Survey
}

// New returns a Survey at a time.
func New(now time.Time, policies ...Policy) *Survey {
	s := &Survey{now: now, known: map[types.UID]bool{}}
	for _, p := range policies {
		s.policies = append(s.policies, &selected{Policy: p})
	}
	return s
}

// Add adds an object, of which it keeps some hundred bytes for each policy that selects it. One that was added before is ignored: lists of
// changing objects have some twice.
func (s *Survey) Add(o *unstructured.Unstructured) {
	if s.known[o.GetUID()] {
		return
	}
	s.known[o.GetUID()] = true
	at := len(s.objects)
	for _, p := range s.policies {
		is, err := p.Selects(o)
		if !is && err == nil {
			continue
		}
		if len(s.objects) == at {
			s.objects = append(s.objects, Object{
				Kind: o.GroupVersionKind(), Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
			})
		}
		p.add(at, o, err)
	}
}

func (p *selected) add(at int, o *unstructured.Unstructured, err error) {
	c := candidate.Of(o, p.Options)
	if err != nil {
		c.Protected = fmt.Sprintf("whether %s selects it is not known: %s", p.Name, err)
	}
	if p.Memory != nil {
		c.LastUsed = p.Memory.LastUsed(o.GetUID())
	}
	p.candidates, p.objects = append(p.candidates, c), append(p.objects, at)
}

// evaluate decides about what the policy selects.
func (p *selected) evaluate(now time.Time) retain.Plan {
	in := retain.Input{Candidates: p.candidates, Rule: p.Rule, Now: now}
	if p.Memory == nil {
		in.Rule.MaxUnused = 0
	} else {
		in.Since = p.Memory.Since
	}
	return retain.Evaluate(in)
}
