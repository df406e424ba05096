package pause

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/operator/budgetstore"
)

// exhausted returns a budget that was exhausted three times.
func exhausted(namespace, name string) budgetstore.Resource {
	b := budgetstore.New(namespace, name)
	b.Spec.Window = metav1.Duration{Duration: time.Hour}
	b.Status.Allowed, b.Status.Exhaustions = 100, 3
	b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionExhausted, Status: metav1.ConditionTrue}}
	return b
}

func flagsOfBudget(namespace, budget string) *resumeOptions {
	return &resumeOptions{scopeFlags: flagsOf(namespace, "", ""), budget: budget}
}

// operate has an operator resume what is annotated with the number of the exhaustion.
func operate(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
	if err := c.Patch(ctx, o, patch, options...); err != nil || o.GetAnnotations()[v1alpha1.ResumeAnnotation] != "3" {
		return err
	}
	available := []metav1.Condition{{Type: v1alpha1.ConditionExhausted, Status: metav1.ConditionFalse}}
	switch o := o.(type) {
	case *v1alpha1.ClusterDeletionBudget:
		o.Status.Conditions = available
	case *v1alpha1.DeletionBudget:
		o.Status.Conditions = available
	}
	return c.Update(ctx, o)
}

func (a *api) resumeBudget(o *resumeOptions) (string, error) {
	a.t.Helper()
	b, err := o.budgetResource()
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = resumeBudget(a.t.Context(), a, b, &out)
	return out.String(), err
}

func TestResumeBudget_HasDeletionsContinue(t *testing.T) {
	for _, c := range []struct{ namespace, budget, want string }{
		{"", "runaway", "Resumed clusterdeletionbudget.gleaner.dev/runaway: deletions continue, up to 100 in 1h0m0s.\n"},
		{"shop", "nightly", "Resumed deletionbudget.gleaner.dev/nightly in namespace shop: deletions continue, up to 100 in 1h0m0s.\n"},
		{"", "shop/nightly", "Resumed deletionbudget.gleaner.dev/nightly in namespace shop: deletions continue, up to 100 in 1h0m0s.\n"},
	} {
		a := newAPI(t, exhausted("", "runaway").Object, exhausted("shop", "nightly").Object)
		a.Client = interceptor.NewClient(a.Client.(client.WithWatch), interceptor.Funcs{Patch: operate})
		got, err := a.resumeBudget(flagsOfBudget(c.namespace, c.budget))
		if err != nil || got != c.want {
			t.Errorf("%q, %v", got, err)
		}
		again := strings.NewReplacer("Resumed ", "", ": deletions continue, up to 100 in 1h0m0s.", " is not exhausted: no deletion waits for it.").Replace(c.want)
		if got, err = a.resumeBudget(flagsOfBudget(c.namespace, c.budget)); err != nil || got != again {
			t.Errorf("again: %q, %v", got, err)
		}
	}
}

func TestResumeBudget_WrongNamesSayWhatToWriteInstead(t *testing.T) {
	a := newAPI(t)
	for _, c := range []struct{ namespace, budget, want string }{
		{"", "a/b/c", "--budget=a/b/c: write NAME for a ClusterDeletionBudget, or NAMESPACE/NAME for a DeletionBudget"},
		{"shop", "other/b", "--budget=other/b: it is in namespace other: omit -n"},
		{"", "none", "there is no ClusterDeletionBudget none: for a DeletionBudget, write --budget NAMESPACE/NAME. To list both: kubectl get clusterdeletionbudgets,deletionbudgets -A"},
		{"shop", "none", "there is no DeletionBudget shop/none: for a ClusterDeletionBudget, write --budget NAME without a namespace. To list both: kubectl get clusterdeletionbudgets,deletionbudgets -A"},
	} {
		if _, err := a.resumeBudget(flagsOfBudget(c.namespace, c.budget)); err == nil || err.Error() != c.want {
			t.Errorf("%v", err)
		}
	}
	o := flagsOfBudget("", "b")
	o.all = true
	usage := exit.Error{}
	if err := o.run(t.Context(), &bytes.Buffer{}); !errors.As(err, &usage) || usage.Code != exit.CodeUsage {
		t.Errorf("%v", err)
	}
}
