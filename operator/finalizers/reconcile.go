package finalizers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/writer"
	"github.com/gleaner-dev/gleaner/policies"
)

// Bounds of the interval between evaluations caused by changes of the object. It grows
// only while the changes follow writes of the module itself.
const (
	minEvaluationInterval = time.Second
	maxEvaluationInterval = time.Minute
)

// A reconciler is one reconciliation of one object.
type reconciler struct {
	*controller
	f          activeFinalizer
	key        key
	resource   catalog.Resource
	object     *unstructured.Unstructured // as read; nil: the read failed
	latest     metav1.Object              // its newest known metadata; nil: must be read
	item       pendingObject
	namespace  modulecall.Namespace
	savedState objectstate.FinalizerState
	charged    bool // the rate limit admitted writes of this attempt; later ones pass as well
}

// reconcile reconciles one object and returns the delay until the next one; 0: when
// something changes.
func (s *controller) reconcile(ctx context.Context, k key) time.Duration {
	v := &reconciler{controller: s, f: s.finalizer(), key: k}
	resource, ok := s.Catalog().Preferred(k.kind)
	if !ok {
		s.removePending(k, false) // when the type is served again, its objects are listed
		return 0
	}
	v.resource = resource
	object, err := s.Reader.Get(ctx, policies.ServiceAccount{}, resource.Version, k.namespace, k.name)
	switch {
	case err != nil && v.notFound(err):
		s.removePending(k, false)
		return 0
	case err != nil:
		return v.finishUnread(ctx, fmt.Errorf("read: %w", err))
	case object.GetUID() != k.uid:
		s.removePending(k, false)
		return 0
	}
	v.object, v.latest = object, object
	hasFinalizer := slices.Contains(object.GetFinalizers(), s.entry)
	if object.GetDeletionTimestamp() == nil {
		s.removePending(k, false)
		return v.reconcileLive(ctx, hasFinalizer)
	}
	if !hasFinalizer {
		s.removePending(k, false)
		return 0
	}
	v.item = s.ensurePending(k)
	v.item.object = graph.ObjectOf(resource.GroupVersionKind(), object)
	v.item.deadline, v.item.deleted = v.deadline(), object.GetDeletionTimestamp().Time
	return v.reconcileTerminating(ctx)
}

// finishUnread handles an object that could not be read. If it is not known to be deleted,
// the reconciliation is only retried.
func (v *reconciler) finishUnread(ctx context.Context, err error) time.Duration {
	if !v.isPending(v.key.uid) {
		return v.retryLive(ctx, Outcome{Err: err})
	}
	v.item = v.ensurePending(v.key)
	o := &v.item.object
	o.Namespace, o.Name, o.UID, o.Kind = v.key.namespace, v.key.name, v.key.uid, v.resource.GroupVersionKind()
	return v.finishWithError(ctx, Outcome{}, err)
}

// deadline returns the object's deadline; zero: none.
func (v *reconciler) deadline() time.Time {
	if v.f.Deadline == 0 {
		return time.Time{}
	}
	return v.object.GetDeletionTimestamp().Add(v.f.Deadline)
}

// overdue reports whether the object's deadline has passed.
func (v *reconciler) overdue() bool {
	return !v.item.deadline.IsZero() && !v.Now().Before(v.item.deadline)
}

// reconcileTerminating handles an object that waits for the finalizer.
func (v *reconciler) reconcileTerminating(ctx context.Context) time.Duration {
	switch {
	case !v.f.appliesTo(v.key.namespace):
		v.item.evaluatedBy = nil
		return v.finish(ctx, Outcome{Reason: NotSelected, Message: fmt.Sprintf("%s does not apply outside its namespace: remove the finalizer", v.f)}, 0)
	case v.f.releasesAll():
		return v.forceRelease(ctx, "the finalizer's resource is being deleted (onRemoval: Release); cleanup may be incomplete")
	case v.f.releasesAtDeadline() && v.overdue() && !v.knownNotSelected(ctx):
		return v.forceRelease(ctx, fmt.Sprintf("the deadline of %s has passed (onDeadline: Release); cleanup may be incomplete", v.f.Deadline))
	}
	if n, found := v.checkPreconditions(ctx); found {
		v.item.evaluatedBy = nil // evaluated as soon as the obstacle is gone
		return v.finish(ctx, n, v.retryDelay(n))
	}
	if err := v.loadState(); err != nil {
		v.item.evaluatedBy = nil
		return v.finishWithError(ctx, Outcome{}, err)
	}
	fingerprint, now := fingerprintOf(v.object), v.Now()
	if m := v.savedState; m.Failed != "" && m.FailedInput == v.inputIdentity(fingerprint) {
		v.item.evaluatedBy = nil
		return v.finish(ctx, Outcome{Reason: Failed, Message: v.failureMessage(m.Failed)}, 0)
	}
	t := &v.item
	if t.evaluatedBy != nil && t.evaluatedBy.Equivalent(v.f.Finalizer) {
		earliest := t.nextRetry
		if paced := t.lastEvaluation.Add(v.evaluationInterval()); fingerprint != t.fingerprint && (earliest.IsZero() || paced.Before(earliest)) {
			earliest = paced
		}
		if earliest.IsZero() || now.Before(earliest) {
			return v.postponeUntil(ctx, earliest)
		}
	}
	t.selfTriggered = v.countSelfTriggered(fingerprint)
	t.evaluatedBy, t.fingerprint, t.lastEvaluation, t.wrote = v.f.Finalizer, fingerprint, now, false
	return v.evaluate(ctx)
}

// knownNotSelected reports whether the finalizer is known not to select the object: then it was
// added for another purpose, and the deadline does not apply.
func (v *reconciler) knownNotSelected(ctx context.Context) bool {
	selected, err := v.isSelected(ctx)
	return err == nil && !selected
}

// countSelfTriggered returns the number of consecutive changes that followed writes of the module:
// most likely the module triggers itself.
func (v *reconciler) countSelfTriggered(fingerprint string) int {
	if t := v.item; t.wrote && fingerprint != t.fingerprint {
		return t.selfTriggered + 1
	}
	return 0
}

// evaluationInterval returns the minimum interval between evaluations of a changing object.
func (v *reconciler) evaluationInterval() time.Duration {
	initial := min(minEvaluationInterval, v.f.RetryInitial)
	if v.item.wrote {
		return backoff(initial, v.item.selfTriggered, maxEvaluationInterval)
	}
	return initial
}

// postponeUntil postpones the object until it is due. If its deadline has passed in the meantime,
// that is reported.
func (v *reconciler) postponeUntil(ctx context.Context, due time.Time) time.Duration {
	t := &v.item
	if !t.reason.yieldsToDeadline() || !v.overdue() {
		return v.requeueAfter(due)
	}
	after := time.Duration(0)
	if !due.IsZero() {
		after = due.Sub(v.Now())
	}
	return v.finish(ctx, Outcome{Reason: t.reason, Message: t.message}, after)
}

// requeueAfter returns the delay until due or the deadline, whichever is first; 0: when
// something changes.
func (v *reconciler) requeueAfter(due time.Time) time.Duration {
	d := v.item.deadline
	if !d.IsZero() && !v.overdue() && (due.IsZero() || d.Before(due)) {
		due = d
	}
	if due.IsZero() {
		return 0
	}
	return max(due.Sub(v.Now()), time.Millisecond)
}

// finishWithError handles an object that could not be read or written.
func (v *reconciler) finishWithError(ctx context.Context, n Outcome, err error) time.Duration {
	n.Reason, n.Message, n.Err = HostError, err.Error(), err
	if v.object != nil && v.object.GetDeletionTimestamp() == nil {
		return v.retryLive(ctx, n)
	}
	return v.finish(ctx, n, v.retryDelay(n))
}

// retryDelay returns the retry delay after an error or a fault; otherwise 0, when
// something changes.
func (v *reconciler) retryDelay(n Outcome) time.Duration {
	if n.Err == nil && n.Fault == nil {
		v.item.failures = 0
		return 0
	}
	v.item.failures++
	return backoff(v.f.RetryInitial, v.item.failures-1, v.f.RetryMax)
}

// backoff returns d doubled the given number of times, at most longest.
func backoff(d time.Duration, times int, longest time.Duration) time.Duration {
	for ; times > 0 && d < longest; times-- {
		d = min(2*d, longest)
	}
	return min(d, longest)
}

// finish records what was decided.
func (v *reconciler) finish(ctx context.Context, n Outcome, after time.Duration) time.Duration {
	if v.stopped(ctx) || writer.IsWait(n.Err) {
		return minRetryDelay // an interrupted reconciliation is not a failure
	}
	t := &v.item
	n.Finalizer, n.Object = v.f.Finalizer, t.object
	if after > 0 {
		n.NextRetry = v.Now().Add(after)
	}
	if n.Reason.yieldsToDeadline() && v.overdue() {
		n.Reason = DeadlineExceeded
		n.Message = strings.TrimSuffix(fmt.Sprintf("the deadline of %s has passed (%s): %s", v.f.Deadline, v.holdReason(), n.Message), ": ")
	}
	t.reason, t.message, t.nextRetry = n.Reason, n.Message, n.NextRetry
	v.storePending(*t)
	v.Record(n)
	return v.requeueAfter(t.nextRetry)
}

// holdReason returns why an overdue object is kept.
func (v *reconciler) holdReason() string {
	switch {
	case !v.f.Enforce:
		return "mode: Monitor"
	case v.f.ReleaseAtDeadline:
		return "another resource has the same finalizer"
	default:
		return "onDeadline: Hold"
	}
}
