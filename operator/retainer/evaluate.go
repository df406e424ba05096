package retainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/retention"
)

const (
	// evaluateTimeout limits the evaluation of the policies that govern one object.
	evaluateTimeout = 5 * time.Second

	// A policy that keeps an object, and does not say for how long, is evaluated again after a delay between these.
	minKept, maxKept = time.Minute, time.Hour

	// After an evaluation that took more than slowEvaluation, nothing of the namespace is removed for restShare times as long, so that
	// policies of one namespace leave time to those of others.
	slowEvaluation = 100 * time.Millisecond
	restShare      = 4
)

var errChanged = errors.New("the object has changed")

// Evaluator evaluates the policies with the hook retain. It must be safe for concurrent use.
type Evaluator interface {
	Evaluate(context.Context, evaluate.Input) (evaluate.Result, error)
}

// evaluations are what policies with the hook retain have decided about the objects of a plan.
type evaluations struct {
	kept    map[types.UID]rest
	resting map[string]rest // namespaces in which policies can't be evaluated, or take long
}

// rest is how long something is not tried again, and how often in a row.
type rest struct {
	count int
	until time.Time
}

// forget forgets what policies have decided, since they are others now.
func (a *evaluations) forget() {
	a.kept, a.resting = map[types.UID]rest{}, map[string]rest{}
}

// keep notes that a policy keeps an object, for a time or, with 0, for a time that grows.
func (a *evaluations) keep(uid types.UID, now time.Time, after time.Duration) {
	r := a.kept[uid]
	if after == 0 {
		after = min(minKept<<min(r.count, 10), maxKept)
	}
	a.kept[uid] = rest{count: r.count + 1, until: now.Add(max(after, time.Duration(hostabi.MinWait)))}
}

// fail notes that a policy can't be evaluated in a namespace.
func (a *evaluations) fail(namespace string, now time.Time) time.Time {
	r := a.resting[namespace]
	until := now.Add(min(minFailureRetry<<min(r.count, 10), maxFailureRetry))
	a.resting[namespace] = rest{count: r.count + 1, until: until}
	return until
}

// took notes how long an evaluation in a namespace took that gave an answer.
func (a *evaluations) took(namespace string, now time.Time, took time.Duration) {
	delete(a.resting, namespace)
	if took > slowEvaluation {
		a.resting[namespace] = rest{until: now.Add(restShare * took)}
	}
}

// until returns when policies are evaluated again about an object; zero, or a time that has passed: now.
func (a *evaluations) until(d retention.Decision) time.Time {
	kept, resting := a.kept[d.UID].until, a.resting[d.Namespace].until
	if kept.After(resting) {
		return kept
	}
	return resting
}

// keeps reports whether policies keep an object at a time.
func (a *evaluations) keeps(uid types.UID, now time.Time) bool {
	r, kept := a.kept[uid]
	return kept && (r.count > 1 || now.Before(r.until))
}

// evaluate evaluates the policies with the hook retain about an object that was just read, and reports whether it is removed.
func (t *turn) evaluate(ctx context.Context, o *unstructured.Unstructured, d retention.Decision) (evaluated evaluate.Result, remove bool) {
	ctx, cancel := context.WithTimeout(ctx, evaluateTimeout)
	defer cancel()
	began := time.Now()
	evaluated, err := t.options.Evaluator.Evaluate(ctx, evaluate.Input{
		Hook: hostabi.HookRetain, Facts: evaluate.FactsOf(object(o), t.options.Graph), Object: o,
		Retention: &hostabi.Retention{Policy: t.p.Key.Name, Namespace: t.p.Key.Namespace, Limit: string(d.Reason)},
	})
	if err == nil {
		err = cmp.Or(evaluated.Fault, changed(evaluated))
	}
	t.mu.Lock()
	now := t.options.Now()
	switch {
	case errors.Is(err, errChanged):
		t.p.skipped[d.UID] = true
	case err != nil:
		t.p.evaluations.fail(d.Namespace, now)
	case evaluated.Verdict.Decision == hostabi.DecisionRemove:
		remove = true
		delete(t.p.evaluations.kept, d.UID)
		t.p.evaluations.took(d.Namespace, now, time.Since(began))
	default:
		t.p.evaluations.took(d.Namespace, now, time.Since(began))
		t.p.evaluations.keep(d.UID, now, time.Duration(evaluated.Verdict.After))
		t.p.keptBy = fmt.Sprintf("%s: %s%s", d.Object, evaluated.PolicyName("the default"), reason(evaluated.Verdict.Reason))
	}
	t.mu.Unlock()
	if !remove && !errors.Is(err, errChanged) {
		t.recordKept(o, d, evaluated, err)
	}
	return evaluated, remove
}

func changed(evaluated evaluate.Result) error {
	if evaluated.Changed != nil {
		return errChanged
	}
	return nil
}

func reason(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// recordKept records that an object is kept, since a policy keeps it, or can't be evaluated.
func (t *turn) recordKept(o *unstructured.Unstructured, d retention.Decision, evaluated evaluate.Result, err error) {
	t.mu.Lock()
	next := t.p.evaluations.until(d)
	if err != nil {
		t.p.failed++
		t.p.failedAt, t.p.failure = t.options.Now(), fmt.Sprintf("evaluate the policies of %s: %v", d.Object, err)
	}
	t.mu.Unlock()
	t.options.Record(Outcome{
		Object: object(o), Policy: t.p.Retention, Reason: d.Reason, Message: t.p.Limit(d.Reason), Kept: true, Evaluated: evaluated, Err: err, NextAttempt: next,
	})
}
