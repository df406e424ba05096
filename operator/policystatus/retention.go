package policystatus

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/retainer"
	"github.com/gleaner-dev/gleaner/operator/retention"
)

// reportRetention writes the status of retention policies, if this replica leads.
func (w *Writer) reportRetention(ctx context.Context) {
	if s, _ := w.view(); s != nil && s.Revision == w.revision {
		w.reportRetentions(ctx, s)
	}
}

// reportRetentions writes the status of retention policies.
func (w *Writer) reportRetentions(ctx context.Context, s *policyset.Snapshot) {
	if w.options.Retention == nil {
		return
	}
	all, _ := w.options.Retention.Load()
	for _, r := range s.Retentions {
		observed, known := all[r.Object.GetUID()]
		known = known && observed.Generation == r.Object.GetGeneration()
		w.write(ctx, r.Object, r.Kind, func(o client.Object) {
			status := retentionStatus(o)
			w.describeRetention(r, observed, known, status)
			status.Reason = summary(status.Conditions)
		})
	}
}

// describeRetention sets the status of a retention policy. Without an observation, nothing is known of objects.
func (w *Writer) describeRetention(r *policyset.Retention, observed retainer.PolicyStatus, known bool, s *v1alpha1.RetentionPolicyStatus) {
	s.ObservedGeneration = r.Object.GetGeneration()
	to := setterOf(&s.Conditions, r.Object)
	absent := w.notGoverned(&r.Declaration)
	switch {
	case !r.Problem.IsZero():
		to.set(v1alpha1.ConditionAccepted, false, r.Problem.Reason, r.Problem.Message)
	case known && observed.TooMany:
		to.set(v1alpha1.ConditionAccepted, false, "TooMany", observed.Problem)
	case !absent.IsZero():
		to.set(v1alpha1.ConditionAccepted, true, absent.Reason, "spec is valid, but "+absent.Message)
	default:
		to.set(v1alpha1.ConditionAccepted, true, "Accepted", "spec is valid")
	}
	describeRetaining(r, observed, known, absent, to)
	if !known || observed.Problem != "" || observed.Listing {
		return
	}
	removed := int64(0)
	for _, n := range observed.Removed {
		removed += n
	}
	s.Selected, s.Due, s.Removed = &observed.Selected, &observed.Due, &removed
	s.Kept, s.NextRemovals, s.LastFailure = nil, nil, nil
	for reason, n := range observed.Kept {
		if s.Kept == nil {
			s.Kept = map[string]int64{}
		}
		s.Kept[string(reason)] = n
	}
	if observed.KeptByPolicies != 0 {
		if s.Kept == nil {
			s.Kept = map[string]int64{}
		}
		s.Kept["Policy"] = observed.KeptByPolicies
	}
	for _, d := range observed.Next[:min(len(observed.Next), v1alpha1.MaxNextRemovals)] {
		s.NextRemovals = append(s.NextRemovals, nextRemoval(d))
	}
	if !observed.FailedAt.IsZero() {
		s.LastFailure = boundedFailure(&v1alpha1.Failure{Time: metav1.NewTime(observed.FailedAt).Rfc3339Copy(), Message: observed.Failure})
	}
}

func nextRemoval(d retention.Decision) v1alpha1.NextRemoval {
	apiVersion, kind := d.Kind.ToAPIVersionAndKind()
	n := v1alpha1.NextRemoval{APIVersion: apiVersion, Kind: kind, Namespace: d.Namespace, Name: d.Name}
	if d.Due.IsZero() {
		n.Reason = string(d.Reason)
		return n
	}
	at := metav1.NewTime(d.Due).Rfc3339Copy()
	n.Time = &at
	return n
}

// describeRetaining sets whether what the limits of a policy remove is removed.
func describeRetaining(r *policyset.Retention, observed retainer.PolicyStatus, known bool, absent policyset.Problem, to setter) {
	switch {
	case !r.Problem.IsZero() || known && observed.TooMany:
		to.set(v1alpha1.ConditionEnforcing, false, "NotAccepted", "nothing is removed")
	case r.Object.GetDeletionTimestamp() != nil:
		to.set(v1alpha1.ConditionEnforcing, false, "Removed", "it is being deleted: nothing is removed")
	case !absent.IsZero():
		to.set(v1alpha1.ConditionEnforcing, false, absent.Reason, absent.Message)
	case r.Spec.Mode != v1alpha1.ModeEnforce:
		to.set(v1alpha1.ConditionEnforcing, false, "Monitor", "nothing is removed: write mode: Enforce to remove what is due")
	case !known || observed.Listing:
		to.setStatus(v1alpha1.ConditionEnforcing, metav1.ConditionUnknown, "Listing", "nothing is removed until all objects are listed")
	case observed.Unreadable != "":
		to.setStatus(v1alpha1.ConditionEnforcing, metav1.ConditionUnknown, "ObjectsUnreadable", "objects can't be read, retrying: "+observed.Unreadable)
	case observed.Waiting:
		to.set(v1alpha1.ConditionEnforcing, false, "Waiting", "removals wait: "+observed.Failure)
	case observed.UsesUnknown != "":
		to.set(v1alpha1.ConditionEnforcing, false, "UsesUnknown", "objects that others can refer to are kept until everything that may refer to them is listed: "+observed.UsesUnknown)
	case observed.Failing != 0 && observed.Failing == observed.Due:
		to.set(v1alpha1.ConditionEnforcing, false, "RemovalsFailing", "objects can't be removed, retrying: "+observed.Failure)
	default:
		to.set(v1alpha1.ConditionEnforcing, true, "Enforcing", strings.Join(append([]string{"objects are removed when a limit is reached"}, notes(observed)...), "; "))
	}
}

// notes are what else there is to know of a policy that is enforced.
func notes(observed retainer.PolicyStatus) (list []string) {
	if observed.KeptBy != "" {
		list = append(list, "another policy keeps "+observed.KeptBy)
	}
	if observed.Failing != 0 {
		list = append(list, fmt.Sprintf("%d objects can't be removed, retrying: %s", observed.Failing, observed.Failure))
	}
	return append(list, observed.Problems...)
}
