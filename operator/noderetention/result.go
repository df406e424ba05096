package noderetention

import (
	"cmp"
	"slices"

	"github.com/gleaner-dev/gleaner/operator/retain"
)

// newResult returns what a plan says. Item returns what is at a position in the candidates.
func newResult(p Policy, plan retain.Plan, item func(at int) Item) Result {
	r := Result{Policy: p, Kept: map[string]retain.Reason{}, Next: plan.Next, ToFree: plan.ToFree, Shortfall: plan.Shortfall}
	for _, d := range plan.Removals {
		i := item(d.Candidate)
		i.Reason = d.Reason
		r.Removals = append(r.Removals, i)
	}
	for _, d := range plan.Kept {
		i := item(d.Candidate)
		if !d.Due.IsZero() {
			i.Due = d.Due
			r.Upcoming = append(r.Upcoming, i)
		}
		r.Kept[i.ID] = d.Reason
	}
	slices.SortStableFunc(r.Upcoming, func(a, b Item) int { return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID)) })
	for _, problem := range plan.Problems {
		r.Problems = append(r.Problems, problem.Message)
	}
	return r
}
