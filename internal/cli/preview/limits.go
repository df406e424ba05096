package preview

import (
	"context"
	"fmt"
	"time"

	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/internal/cli/input"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/budgetstore"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/preview"
)

// limits returns notes about pauses and deletion budgets, which delay what is deleted after the targets.
func limits(ctx context.Context, a *input.Input, p *preview.Preview) []string {
	if a.Config == nil {
		return nil
	}
	c, err := finalizers.NewClient(a.Config)
	if err != nil {
		return []string{"whether deletions are paused or limited is unknown: " + err.Error()}
	}
	r := finalizers.ReadLimits(ctx, c)
	notes := append([]string(nil), r.Unread...)
	for _, text := range r.Paused(a.Namespace, time.Now()) {
		notes = append(notes, text+" What Gleaner would delete stays until then.")
	}
	return append(notes, budgetNotes(a, r, p)...)
}

// budgetNotes returns a note for each budget that has fewer deletions left than it would need.
func budgetNotes(a *input.Input, r *finalizers.Resources, p *preview.Preview) (notes []string) {
	if len(r.Budgets) == 0 {
		return nil
	}
	needed := map[string]int{}
	for _, o := range p.Objects {
		item, ok := a.Survey.Items[graph.IDOf(o.UID)]
		if !ok || o.Depth == 0 || o.Terminating || !o.MayBeDeleted() {
			continue // the target is deleted by a person
		}
		object := finalizers.Object{Object: item.Meta, Resource: item.Resource.Version.GroupResource()}
		for _, b := range r.BudgetsOf(object) {
			needed[b.String()]++
		}
	}
	for _, b := range r.Budgets {
		if n := needed[b.String()]; n > 0 {
			notes = append(notes, budgetNote(b, n)...)
		}
	}
	return notes
}

// budgetNote says that a budget would be exhausted by n deletions; nothing if it would not be.
func budgetNote(b budgetstore.Resource, n int) []string {
	left := max(int(b.Status.Allowed-b.Status.Used), 0)
	deletions, window := printer.Count(n, "deletion", "deletions"), b.Spec.Window.Duration
	switch {
	case b.IsTripped():
		return []string{fmt.Sprintf("%s; %s would wait", b.Message(), deletions)}
	case b.Status.ObservedGeneration == 0:
		return []string{fmt.Sprintf("%s would limit %s, and has not been counted yet", b, deletions)}
	case n <= left:
		return nil
	case b.Trips():
		return []string{fmt.Sprintf("%s would be exhausted: it would allow %d of %s, and the others would wait until a person resumes it", b, left, deletions)}
	default:
		return []string{fmt.Sprintf("%s would be exhausted: it would allow %d of %s at once, and %d in each %s", b, left, deletions, b.Status.Allowed, window)}
	}
}
