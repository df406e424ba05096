package retention

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/retain"
)

// maxProblems is the maximum number of problems of a Result.
const maxProblems = 10

// Decision is what a policy says about an object that it selects.
type Decision struct {
	Object
	Reason  retain.Reason
	Message string    // for people, if there is more to say than the reason
	Due     time.Time // when an object that stays is removed if nothing changes before; zero: that is not known in advance
}

// Result is what a policy says about all objects that it selects.
type Result struct {
	Removals []Decision // in their order
	Kept     []Decision // by name
	Next     time.Time  // when the policy says something else about the same objects; zero: never
	Problems []string   // at most maxProblems
}

// Evaluate decides about all objects.
func (s *Survey) Evaluate(at Moment) Result {
	all := s.inNamespaces()
	in := retain.Input{Rule: s.policy.Rule, Now: at.Now, Since: at.Since, Candidates: make([]retain.Candidate, len(all))}
	for i, e := range all {
		e.observe(at)
		in.Candidates[i] = e.candidate.Candidate
		if e.unknown != "" {
			in.Candidates[i].Protected = e.unknown
		}
	}
	if at.Since.IsZero() {
		in.Rule.MaxUnused = 0
	}
	plan := retain.Evaluate(in)
	r := Result{Next: plan.Next, Removals: make([]Decision, 0, len(plan.Removals)), Kept: make([]Decision, 0, len(plan.Kept))}
	s.evaluated, s.removes = true, make(map[types.UID]bool, len(plan.Removals))
	for _, d := range plan.Removals {
		r.Removals = append(r.Removals, Decision{Object: all[d.Candidate].Object, Reason: d.Reason})
		s.removes[all[d.Candidate].UID] = true
	}
	for _, d := range plan.Kept {
		kept := Decision{Object: all[d.Candidate].Object, Reason: d.Reason, Due: d.Due}
		if d.Reason == retain.IsProtected {
			kept.Message = in.Candidates[d.Candidate].Protected
		}
		r.Kept = append(r.Kept, kept)
	}
	for _, p := range plan.Problems[:min(len(plan.Problems), maxProblems)] {
		text := p.Message
		if p.Candidate >= 0 {
			text = fmt.Sprintf("%s: %s", all[p.Candidate].Object, text)
		}
		r.Problems = append(r.Problems, text)
	}
	return r
}

// Has reports whether the policy selects, or may select, an object.
func (s *Survey) Has(uid types.UID) bool { return s.entries[uid] != nil }

// Removes reports whether the policy removes an object, by the last evaluation.
func (s *Survey) Removes(uid types.UID) bool { return s.removes[uid] }

// inNamespaces returns the objects in namespaces that the policy selects, or may select, by name.
func (s *Survey) inNamespaces() []*entry {
	all := s.sorted()
	if s.policy.SelectsNamespace == nil {
		return all
	}
	type answer struct {
		is  bool
		err error
	}
	answers := map[string]answer{}
	return slices.DeleteFunc(all, func(e *entry) bool {
		a, known := answers[e.Namespace]
		if !known {
			a.is, a.err = s.policy.SelectsNamespace(e.Namespace)
			answers[e.Namespace] = a
		}
		if e.unknown = ""; a.err != nil {
			e.unknown = fmt.Sprintf("whether it is selected is unknown: %s", a.err)
		}
		return !a.is && a.err == nil
	})
}

// Keeps returns why the policy keeps an object that another policy removes (P-25); "" if it does not. The object must be as it is now.
// What a policy may select and has not decided about stays.
func (s *Survey) Keeps(o *unstructured.Unstructured) string {
	c, selected := s.policy.of(o)
	if selected && s.policy.SelectsNamespace != nil {
		is, err := s.policy.SelectsNamespace(o.GetNamespace())
		if err != nil {
			return fmt.Sprintf("%s keeps it: whether it is selected is unknown: %s", s.policy.Name, err)
		}
		selected = is
	}
	switch {
	case !selected:
		return ""
	case c.Protected != "":
		return fmt.Sprintf("%s keeps it: %s", s.policy.Name, c.Protected)
	case !s.evaluated || s.entries[o.GetUID()] == nil:
		return s.policy.Name + " has not decided about it yet"
	case !s.removes[o.GetUID()]:
		return s.policy.Name + " keeps it"
	default:
		return ""
	}
}
