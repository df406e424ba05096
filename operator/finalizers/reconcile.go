package finalizers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gleaner-dev/gleaner/operator/bulkread"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/writer"
	"github.com/gleaner-dev/gleaner/policies"
)

// A reconciler is one reconciliation of one object.
type reconciler struct {
	*subject
	patcher patcher
	state   stateStore
	item    pendingObject
	charged bool // the rate limit admitted writes of this attempt; later ones pass as well
}

func newReconciler(s *controller, k key) *reconciler {
	v := &reconciler{subject: &subject{controller: s, f: s.finalizer(), key: k}}
	v.patcher = patcher{subject: v.subject}
	v.state = stateStore{patcher: &v.patcher, item: &v.item}
	return v
}

// reconcile reconciles one object and returns the delay until the next one; 0: when
// something changes.
func (s *controller) reconcile(ctx context.Context, k key) time.Duration {
	v := newReconciler(s, k)
	resource, ok := s.Catalog().Preferred(k.kind)
	if !ok {
		s.removePending(k, false) // when the type is served again, its objects are listed
		return 0
	}
	v.resource = resource
	object, err := s.read(ctx, v.f, k, resource)
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
	v.object, v.patcher.latest = object, object
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

// read reads an object. Until its first evaluation begins, it may come from a watch or a list that
// had it in the state that was seen last. Later it may not: the module's own writes, such as of
// its state, can be newer than what was seen and listed.
func (s *controller) read(ctx context.Context, f activeFinalizer, k key, resource catalog.Resource) (*unstructured.Unstructured, error) {
	if seen := s.seenUnevaluated(k.uid); seen != "" {
		if o, ok := s.watched(f, k, resource, seen); ok {
			return o, nil
		}
		wanted := bulkread.Wanted{Resource: resource, Namespace: k.namespace, Name: k.name, UID: k.uid, ResourceVersion: seen}
		if s.Bulk != nil {
			if listed, ok := s.Bulk.Get(wanted); ok {
				return listed, nil
			}
		}
	}
	return s.Reader.Get(ctx, policies.ServiceAccount{}, resource.Version, k.namespace, k.name)
}

// watched returns the metadata of an object that a watch has just delivered, if the finalizer needs
// no more.
func (s *controller) watched(f activeFinalizer, k key, resource catalog.Resource, seen string) (*unstructured.Unstructured, bool) {
	if !f.readsMetadata() || !resource.Local { // otherwise a resourceVersion may not stand for one state
		return nil, false
	}
	metadata, ok := s.lastSeen.Take(k.uid, seen, s.Now())
	if !ok {
		return nil, false
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(metadata)
	if err != nil {
		return nil, false
	}
	o := &unstructured.Unstructured{Object: content}
	o.SetGroupVersionKind(resource.GroupVersionKind())
	return o, true
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

// reconcileTerminating handles an object that waits for the finalizer.
func (v *reconciler) reconcileTerminating(ctx context.Context) time.Duration {
	switch {
	case v.f.BuiltIn:
		return v.handle(ctx)
	case !v.f.appliesTo(v.key.namespace):
		v.item.evaluatedBy = nil
		return v.finish(ctx, Outcome{Reason: NotSelected, Message: fmt.Sprintf("%s does not apply outside its namespace: remove the finalizer", v.f)}, 0)
	case v.f.releasesAll():
		return v.forceRelease(ctx, "the finalizer's resource is being deleted (onRemoval: Release); cleanup may be incomplete")
	case v.f.releasesAtDeadline() && v.item.overdue(v.Now()) && !v.knownNotSelected(ctx):
		return v.forceRelease(ctx, fmt.Sprintf("the deadline of %s has passed (onDeadline: Release); cleanup may be incomplete", v.f.Deadline))
	}
	if n, found := v.checkPreconditions(ctx); found {
		v.item.evaluatedBy = nil // evaluated as soon as the obstacle is gone
		return v.finish(ctx, n, v.retryDelay(n))
	}
	if err := v.state.load(); err != nil {
		v.item.evaluatedBy = nil
		return v.finishWithError(ctx, Outcome{}, err)
	}
	fingerprint, now := v.fingerprint(), v.Now()
	if m := v.state.saved; m.Failed != "" && m.FailedInput == v.f.inputIdentity(fingerprint) {
		v.item.evaluatedBy = nil
		return v.finish(ctx, Outcome{Reason: Failed, Message: v.f.failureMessage(m.Failed)}, 0)
	}
	t := &v.item
	if t.evaluatedBy != nil && t.evaluatedBy.Equivalent(v.f.Finalizer) {
		earliest := t.nextRetry
		if paced := t.lastEvaluation.Add(t.evaluationInterval(v.f.RetryInitial)); fingerprint != t.fingerprint && (earliest.IsZero() || paced.Before(earliest)) {
			earliest = paced
		}
		if earliest.IsZero() || now.Before(earliest) {
			return v.postponeUntil(ctx, earliest)
		}
	}
	t.selfTriggered = t.countSelfTriggered(fingerprint)
	t.evaluatedBy, t.fingerprint, t.lastEvaluation, t.wrote = v.f.Finalizer, fingerprint, now, false
	return v.evaluate(ctx)
}

// knownNotSelected reports whether the finalizer is known not to select the object: then it was
// added for another purpose, and the deadline does not apply.
func (v *reconciler) knownNotSelected(ctx context.Context) bool {
	selected, err := v.isSelected(ctx)
	return err == nil && !selected
}

// postponeUntil postpones the object until it is due. If its deadline has passed in the meantime,
// that is reported.
func (v *reconciler) postponeUntil(ctx context.Context, due time.Time) time.Duration {
	t := &v.item
	if !t.reason.yieldsToDeadline() || !t.overdue(v.Now()) {
		return v.item.requeueAfter(due, v.Now())
	}
	after := time.Duration(0)
	if !due.IsZero() {
		after = due.Sub(v.Now())
	}
	return v.finish(ctx, Outcome{Reason: t.reason, Message: t.message}, after)
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

// finish records what was decided.
func (v *reconciler) finish(ctx context.Context, n Outcome, after time.Duration) time.Duration {
	if v.stopped(ctx) || writer.IsWait(n.Err) {
		return writer.RetryAfter(n.Err, minRetryDelay) // an interrupted reconciliation is not a failure
	}
	t := &v.item
	n.Finalizer, n.Object = v.f.Finalizer, t.object
	if after > 0 {
		n.NextRetry = v.Now().Add(after)
	}
	if n.Reason.yieldsToDeadline() && v.item.overdue(v.Now()) {
		n.Reason = DeadlineExceeded
		n.Message = strings.TrimSuffix(fmt.Sprintf("the deadline of %s has passed (%s): %s", v.f.Deadline, v.holdReason(), n.Message), ": ")
	}
	t.reason, t.message, t.nextRetry = n.Reason, n.Message, n.NextRetry
	v.storePending(*t)
	v.Record(n)
	return t.requeueAfter(t.nextRetry, v.Now())
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
