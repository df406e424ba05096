package collector

import (
	"cmp"
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

// write carries out an action, if the steps of the writer admit it. For nil, it returns
// Done.
func (c *Collector) write(ctx context.Context, action decide.Action, cause writer.Cause) (act.Result, error) {
	if action == nil {
		return act.Done, nil
	}
	target, _ := decide.Target(action)
	return c.writer.Do(ctx, writer.Write{
		Origin: writer.Collector, Target: target, Effect: effectOf(action), Cause: cause, References: removedBy(action),
		Do: func(ctx context.Context) (act.Result, error) { return c.actor.Do(ctx, action) },
	})
}

// causeOf returns why a plan is carried out. The owner is the first one that does not keep
// the object any longer.
func causeOf(facts decide.Facts, plan decide.Plan, evaluation evaluate.Result) writer.Cause {
	cause := writer.Cause{Reason: string(plan.Reason), Message: evaluation.Verdict.Reason, Policy: evaluation.PolicyName("")}
	i := slices.IndexFunc(facts.Owners, func(o decide.Owner) bool {
		return o.Status == decide.Absent || o.Status == decide.Waiting || o.Status == decide.Orphaning
	})
	if i >= 0 {
		cause.Owner, cause.Message = facts.Owners[i].Reference.UID, cmp.Or(cause.Message, facts.Owners[i].Message)
	}
	return cause
}

// removedBy returns the owner references that an action removes because their owners are absent.
func removedBy(action decide.Action) []metav1.OwnerReference {
	if drop, ok := action.(decide.DropReferences); ok && !drop.Orphan {
		return drop.References
	}
	return nil
}

// effectOf returns the effect of an action. One without an effect here is not carried out.
func effectOf(action decide.Action) writer.Effect {
	switch action.(type) {
	case decide.Delete, decide.Propagate:
		return writer.Deletes
	case decide.DropReferences:
		return writer.Orphans
	case decide.RemoveFinalizer, decide.Unblock:
		return writer.Releases
	case decide.AddFinalizer:
		return writer.Protects
	case decide.SaveState, decide.RemoveState:
		return writer.State
	default:
		return ""
	}
}
