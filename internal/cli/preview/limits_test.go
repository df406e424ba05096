package preview

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/budgetstore"
)

func TestBudgetNote_SaysWhatABudgetWouldDelay(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*v1alpha1.DeletionBudgetSpec, *v1alpha1.DeletionBudgetStatus)
		n      int
		want   []string
	}{
		{"enough is left", nil, 80, nil},
		{"not enough is left", nil, 81, []string{"DeletionBudget shop/b would be exhausted: it would allow 80 of 81 deletions at once, and 100 in each 1h0m0s"}},
		{
			"it trips", func(spec *v1alpha1.DeletionBudgetSpec, _ *v1alpha1.DeletionBudgetStatus) {
				spec.OnExhausted = v1alpha1.OnExhaustedTrip
			}, 200,
			[]string{"DeletionBudget shop/b would be exhausted: it would allow 80 of 200 deletions, and the others would wait until a person resumes it"},
		},
		{
			"it has tripped", func(spec *v1alpha1.DeletionBudgetSpec, status *v1alpha1.DeletionBudgetStatus) {
				spec.OnExhausted, status.Used = v1alpha1.OnExhaustedTrip, 100
				status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionExhausted, Status: metav1.ConditionTrue}}
			}, 1,
			[]string{"DeletionBudget shop/b is exhausted: 100 of 100 deletions in 1h0m0s; nothing more is deleted until gleaner resume --budget shop/b; 1 deletion would wait"},
		},
		{
			"no operator has seen it", func(_ *v1alpha1.DeletionBudgetSpec, status *v1alpha1.DeletionBudgetStatus) {
				*status = v1alpha1.DeletionBudgetStatus{}
			}, 1,
			[]string{"DeletionBudget shop/b would limit 1 deletion, and has not been counted yet"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := budgetstore.New("shop", "b")
			b.Spec.Window = metav1.Duration{Duration: time.Hour}
			*b.Status = v1alpha1.DeletionBudgetStatus{ObservedGeneration: 1, Allowed: 100, Used: 20}
			if c.change != nil {
				c.change(b.Spec, b.Status)
			}
			if diff := cmp.Diff(c.want, budgetNote(b, c.n)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
