package finalizers

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/operator/budgetstore"
	"github.com/gleaner-dev/gleaner/operator/livelist"
)

// readBudgets reads the deletion budgets. Where their types are not installed, there are none.
func (b *Resources) readBudgets(ctx context.Context, c client.Reader) {
	all, _, err := budgetstore.Read(ctx, c, livelist.Unserved)
	if err != nil {
		b.Unread = append(b.Unread, fmt.Sprintf("DeletionBudgets: %v", err))
	}
	budgetstore.Sort(all)
	b.Budgets = all
}

// Limited describes the exhausted budgets that select an object, for people.
func (b *Resources) Limited(o Object) []string {
	var lines []string
	for _, r := range b.BudgetsOf(o) {
		if r.IsExhausted() {
			lines = append(lines, r.Message()+".")
		}
	}
	return lines
}

// limits reports whether a budget selects an object. If its selectors are invalid, it selects all objects of its resources.
func (b *Resources) limits(r budgetstore.Resource, o Object) bool {
	p, _ := r.Selection()
	switch {
	case p.Namespace != "" && p.Namespace != o.GetNamespace(), !p.Selects(o.Resource):
		return false
	case p.ObjectSelector != nil && !p.ObjectSelector.Matches(labels.Set(o.GetLabels())):
		return false
	case p.NamespaceSelector == nil:
		return true
	}
	known, ok := b.labels[o.GetNamespace()]
	return !ok || p.NamespaceSelector.Matches(known)
}

// ReadLimits reads the pauses and budgets, and the labels of namespaces if a budget selects by them.
func ReadLimits(ctx context.Context, c client.Reader) *Resources {
	b := &Resources{Installed: true, ReadAt: time.Now(), labels: map[string]labels.Set{}}
	b.readPauses(ctx, c)
	b.readBudgets(ctx, c)
	b.readNamespaceLabels(ctx, c)
	return b
}

// BudgetsOf returns the budgets that select an object.
func (b *Resources) BudgetsOf(o Object) (all []budgetstore.Resource) {
	for _, r := range b.Budgets {
		if b.limits(r, o) {
			all = append(all, r)
		}
	}
	return all
}
