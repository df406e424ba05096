package finalizers

import (
	"context"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/operator/writer"
)

// reconcileLive handles an object that is not being deleted.
func (v *reconciler) reconcileLive(ctx context.Context, hasFinalizer bool) time.Duration {
	switch {
	case !v.f.appliesTo(v.key.namespace) || !v.f.needsWrite(hasFinalizer):
		return 0
	case hasFinalizer && v.f.BuiltIn:
		return v.withdraw(ctx)
	case hasFinalizer:
		return v.forceRelease(ctx, "the finalizer's resource is being deleted (onRemoval: Release)")
	case v.isExempt(v.key.namespace):
		return 0
	}
	selected, err := v.isSelected(ctx)
	switch {
	case err != nil:
		return v.retryLive(ctx, Outcome{Reason: Attached, Message: "whether the finalizer selects the object is unknown", Err: err})
	case !selected || v.namespace.Terminating:
		return 0
	}
	written, err := v.patcher.patch(ctx, writer.Protects, func(o metav1.Object) (map[string]any, error) {
		if o.GetDeletionTimestamp() != nil || slices.Contains(o.GetFinalizers(), v.entry) {
			return nil, nil
		}
		return map[string]any{"finalizers": append(slices.Clone(o.GetFinalizers()), v.entry)}, nil
	})
	n := Outcome{Finalizer: v.f.Finalizer, Object: v.target(), Reason: Attached, Err: err}
	switch {
	case errors.Is(err, errGone):
	case err != nil:
		return v.retryLive(ctx, n)
	case written:
		v.Record(n)
	}
	return 0
}

// retryLive schedules a retry for an object that is not being deleted. Only the first
// failure is recorded: all objects of a resource may be affected.
func (v *reconciler) retryLive(ctx context.Context, n Outcome) time.Duration {
	if v.stopped(ctx) || writer.IsWait(n.Err) {
		return writer.RetryAfter(n.Err, minRetryDelay)
	}
	recorded := v.retryLimiter.NumRequeues(v.key) != 0
	delay := v.retryLimiter.When(v.key)
	if recorded || v.object == nil {
		v.Log.V(1).Info("Writing a finalizer failed, retrying", "finalizer", v.f.String(), "object", v.key.String(), "error", n.Err.Error())
		return delay
	}
	n.Finalizer, n.Object = v.f.Finalizer, v.target()
	n.NextRetry = v.Now().Add(delay)
	v.Record(n)
	return delay
}
