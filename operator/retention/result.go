package retention

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gleaner-dev/gleaner/operator/retain"
)

// maxProblems is the maximum number of problems of an Outcome.
const maxProblems = 10

// Removal is an object that is removed.
type Removal struct {
	Object
	Policy string // the first one that removes it
	Reason retain.Reason
}

// Kept is an object that one policy would remove and another keeps (P-25).
type Kept struct {
	Object
	Removed, Kept []string // policies
}

// Decision is what one policy says about an object that it selects.
type Decision struct {
	Object
	Removed bool
	Reason  retain.Reason
	Message string // for people, if there is more to say than the reason
}

// Outcome is what one policy says by itself.
type Outcome struct {
	Selected int                   // objects
	Removed  map[retain.Reason]int // objects
	Kept     map[retain.Reason]int // objects
	Next     time.Time             // when it says something else about the same objects; zero: never
	Problems []string              // at most maxProblems
}

// Result is what all policies say at one time.
type Result struct {
	Removals []Removal // in their order: those of the first policy, then those of the next one
	Kept     []Kept    // by name
	Next     time.Time // the earliest of all policies; zero: never

	policies []planned
	objects  []Object
}

// planned is the plan of one policy. Its positions are those of candidates.
type planned struct {
	*view
	plan retain.Plan
}

// Evaluate decides about all objects.
func (s *Survey) Evaluate(at Moment) Result {
	objects, views := s.views(at)
	r := Result{objects: objects}
	var named []retain.Named
	first := map[int]Removal{}
	removedBy := map[int][]string{}
	for _, p := range views {
		plan := p.evaluate(at)
		r.policies = append(r.policies, planned{p, plan})
		if next := plan.Next; !next.IsZero() && (r.Next.IsZero() || next.Before(r.Next)) {
			r.Next = next
		}
		translated := retain.Plan{Removals: p.translate(plan.Removals), Kept: p.translate(plan.Kept)}
		named = append(named, retain.Named{Name: p.Name, Plan: translated})
		for _, d := range translated.Removals {
			if _, other := first[d.Candidate]; !other {
				first[d.Candidate] = Removal{objects[d.Candidate], p.Name, d.Reason}
			}
			removedBy[d.Candidate] = append(removedBy[d.Candidate], p.Name)
		}
	}
	removals, keptBy := retain.Combine(named...)
	for _, d := range removals {
		r.Removals = append(r.Removals, first[d.Candidate])
	}
	for at, by := range keptBy {
		r.Kept = append(r.Kept, Kept{objects[at], removedBy[at], by})
	}
	slices.SortFunc(r.Kept, func(a, b Kept) int { return compare(a.Object, b.Object) })
	return r
}

// translate replaces the positions of candidates by those of objects.
func (v *view) translate(decisions []retain.Decision) []retain.Decision {
	translated := slices.Clone(decisions)
	for i := range translated {
		translated[i].Candidate = v.objects[translated[i].Candidate]
	}
	return translated
}

func compare(a, b Object) int {
	return cmp.Or(cmp.Compare(a.Kind.Kind, b.Kind.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// Outcome returns what one policy says by itself; the zero Outcome if there is none of this name.
func (r Result) Outcome(policy string) Outcome {
	p, ok := r.find(policy)
	if !ok {
		return Outcome{}
	}
	o := Outcome{Selected: len(p.candidates), Next: p.plan.Next, Removed: count(p.plan.Removals), Kept: count(p.plan.Kept)}
	for _, problem := range p.plan.Problems {
		if len(o.Problems) == maxProblems {
			break
		}
		text := problem.Message
		if problem.Candidate >= 0 {
			text = fmt.Sprintf("%s: %s", r.objects[p.objects[problem.Candidate]], text)
		}
		o.Problems = append(o.Problems, text)
	}
	return o
}

func count(decisions []retain.Decision) map[retain.Reason]int {
	by := map[retain.Reason]int{}
	for _, d := range decisions {
		by[d.Reason]++
	}
	return by
}

// Decisions returns what one policy says by itself about each object that it selects: first what it removes, in that order, then
// what it keeps, by name.
func (r Result) Decisions(policy string) []Decision {
	p, ok := r.find(policy)
	if !ok {
		return nil
	}
	all := make([]Decision, 0, len(p.candidates))
	for _, d := range p.plan.Removals {
		all = append(all, Decision{Object: r.objects[p.objects[d.Candidate]], Removed: true, Reason: d.Reason})
	}
	for _, d := range p.plan.Kept {
		decision := Decision{Object: r.objects[p.objects[d.Candidate]], Reason: d.Reason}
		if d.Reason == retain.IsProtected {
			decision.Message = p.candidates[d.Candidate].Protected
		}
		all = append(all, decision)
	}
	return all
}

func (r Result) find(policy string) (planned, bool) {
	at := slices.IndexFunc(r.policies, func(p planned) bool { return p.Name == policy })
	if at < 0 {
		return planned{}, false
	}
	return r.policies[at], true
}
