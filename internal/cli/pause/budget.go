package pause

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/budgetstore"
)

var errNotResumed = errors.New("the budget was annotated, but no operator has resumed it: check gleaner doctor")

// budget returns the budget that --budget names.
func (o *resumeOptions) budgetResource() (budgetstore.Resource, error) {
	namespace, name := *o.Namespace, o.budget
	parts := strings.Split(o.budget, "/")
	if slices.Contains(parts, "") || len(parts) > 2 {
		return budgetstore.Resource{}, exit.Usagef("--budget=%s: write NAME for a ClusterDeletionBudget, or NAMESPACE/NAME for a DeletionBudget", o.budget)
	}
	if len(parts) == 2 {
		if namespace != "" && namespace != parts[0] {
			return budgetstore.Resource{}, exit.Usagef("--budget=%s: it is in namespace %s: omit -n", o.budget, parts[0])
		}
		namespace, name = parts[0], parts[1]
	}
	return budgetstore.New(namespace, name), nil
}

// resumeBudget has deletions continue that wait for a budget.
func resumeBudget(ctx context.Context, c client.Client, b budgetstore.Resource, out io.Writer) error {
	name := budgetName(b)
	if err := c.Get(ctx, client.ObjectKeyFromObject(b.Object), b.Object); err != nil {
		return explainBudget(err, b)
	}
	if !b.IsExhausted() {
		printer.Fprintf(out, "%s is not exhausted: no deletion waits for it.\n", name)
		return nil
	}
	number := b.Status.Exhaustions
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.ResumeAnnotation, strconv.FormatInt(number, 10))
	if err := c.Patch(ctx, b.Object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return explainBudget(err, b)
	}
	err := wait.PollUntilContextTimeout(ctx, confirmInterval, confirmTimeout, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(b.Object), b.Object)
		return err == nil && (!b.IsExhausted() || b.Status.Exhaustions != number), err
	})
	switch {
	case wait.Interrupted(err) && ctx.Err() == nil:
		return errNotResumed
	case err != nil:
		return explainBudget(err, b)
	}
	printer.Fprintf(out, "Resumed %s: deletions continue, up to %d in %s.\n", name, b.Status.Allowed, b.Spec.Window.Duration)
	return nil
}

// budgetName returns the name of a budget as kubectl prints it, with its namespace.
func budgetName(b budgetstore.Resource) string {
	name := strings.ToLower(b.Kind()) + "." + v1alpha1.GroupVersion.Group + "/" + b.GetName()
	if b.GetNamespace() != "" {
		name += " in namespace " + b.GetNamespace()
	}
	return name
}

// explainBudget says what to do about an error of the API server.
func explainBudget(err error, b budgetstore.Resource) error {
	switch {
	case meta.IsNoMatchError(err):
		return errors.New("the cluster has no deletion budgets: install their types with kubectl apply -k config/components/safety")
	case apierrors.IsNotFound(err) && b.GetNamespace() == "":
		return fmt.Errorf("there is no ClusterDeletionBudget %s: for a DeletionBudget, write --budget NAMESPACE/NAME. To list both: kubectl get clusterdeletionbudgets,deletionbudgets -A", b.GetName())
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no %s: for a ClusterDeletionBudget, write --budget NAME without a namespace. To list both: kubectl get clusterdeletionbudgets,deletionbudgets -A", b)
	default:
		return err
	}
}
