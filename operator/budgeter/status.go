package budgeter

import (
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/budget"
	"github.com/gleaner-dev/gleaner/operator/budgetstore"
)

// propose returns the next status, which has to be written; false if it is the current one.
func (l *limiter) propose() (r budgetstore.Resource, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, reserved := l.instant(), 0
	r = l.resource.DeepCopy()
	resumed := r.IsResumed()
	if l.observed {
		propose := l.alloc.Propose
		if resumed {
			propose = l.alloc.ProposeResumed
		}
		var ledger budget.Ledger
		ledger, reserved = propose(l.want(now, resumed), now)
		r.SetLedger(ledger)
		r.Status.Allowed = int32(r.Limit().Max) //nolint:gosec // at most a million, or a part of an int32
	}
	if waiting := int32(l.line.Len()); now.Wall.Sub(l.counted) >= statusDelay || waiting == 0 { //nolint:gosec // at most MaxLine
		r.Status.Waiting = waiting
	}
	r.Status.ObservedGeneration = r.GetGeneration()
	l.setConditions(r, now, resumed, reserved)
	if r.IsExhausted() != l.stored.IsExhausted() {
		r.Status.Waiting = int32(l.line.Len()) //nolint:gosec // at most MaxLine
	}
	if apiequality.Semantic.DeepEqual(r.Status, l.stored.Status) {
		l.alloc.Abandon()
		return r, false
	}
	if r.Status.Waiting != l.resource.Status.Waiting {
		l.counted = now.Wall
	}
	l.writing = true
	return r, true
}

// want returns how many deletions to reserve. The caller holds mu.
func (l *limiter) want(now budget.Instant, resumed bool) int {
	free, waiting := l.alloc.Free(now), l.line.Len()
	if l.resource.IsTripped() && !resumed {
		return 0
	}
	switch {
	case l.wanted:
		l.batch = min(2*l.batch, maxBatch)
	case waiting == 0:
		l.batch = max(l.batch/2, minBatch)
		return 0
	}
	l.wanted = false
	most := min(max(l.resource.Limit().Max/batchShare, minBatch), maxBatch)
	return max(min(max(waiting, l.batch), most)-free, 0)
}

// setConditions sets the conditions. The caller holds mu.
func (l *limiter) setConditions(r budgetstore.Resource, now budget.Instant, resumed bool, reserved int) {
	accepted := condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, "Accepted", "deletions of the selected objects are limited")
	switch {
	case l.excess:
		accepted = condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, "TooMany",
			fmt.Sprintf("there are more than %d budgets, and nothing that this one selects is deleted: remove some", limitOf(r.GetNamespace())))
	case l.counting != "":
		accepted = condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonCountFailed,
			fmt.Sprintf("the objects that maxDeletions is a percentage of can't be counted: %s. Nothing that the budget selects is deleted", l.counting))
	case l.problem != "":
		accepted = condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, "Invalid", fmt.Sprintf("%s. Nothing that it selects is deleted", l.problem))
	}
	if l.line.Len() != 0 {
		l.waited = now.Mono
	}
	recently := now.Mono-l.waited < statusDelay
	waits := l.observed && l.line.Len() != 0 && reserved == 0 && l.alloc.Free(now) == 0
	was := r.IsExhausted() && !resumed
	if !was && waits {
		r.Status.Exhaustions++
	}
	exhausted := condition(v1alpha1.ConditionExhausted, metav1.ConditionFalse, v1alpha1.ReasonAvailable, "no deletion waits")
	if waits || was && (r.IsTripped() || recently) {
		exhausted = condition(v1alpha1.ConditionExhausted, metav1.ConditionTrue, v1alpha1.ReasonWaiting, "deletions wait until earlier ones have left the window")
		if r.Trips() {
			exhausted = condition(v1alpha1.ConditionExhausted, metav1.ConditionTrue, v1alpha1.ReasonTripped, fmt.Sprintf(
				"nothing more is deleted until a person resumes: gleaner resume %s, or kubectl annotate --overwrite with %s=%d", r.ResumeArgs(), v1alpha1.ResumeAnnotation, r.Status.Exhaustions))
		}
	}
	for _, c := range []metav1.Condition{accepted, exhausted} {
		c.ObservedGeneration, c.LastTransitionTime = r.GetGeneration(), metav1.NewTime(now.Wall).Rfc3339Copy()
		apimeta.SetStatusCondition(&r.Status.Conditions, c)
	}
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}
