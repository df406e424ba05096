package retainer

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/retention"
	"github.com/gleaner-dev/gleaner/operator/writer"
	"github.com/gleaner-dev/gleaner/policies"
)

// waitRetry is when removals that wait for a pause or a budget are tried again, unless that has changed before.
const waitRetry = 10 * time.Second

// work removes what is due until ctx ends, one policy at a time.
func (r *Retainer) work(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.turns:
		case <-timer.C:
		case <-r.options.Gate.Changed():
		}
		var next time.Time
		for ctx.Err() == nil {
			p, later := r.begin()
			if p == nil {
				next = later
				break
			}
			r.serve(ctx, p)
			r.finish(p)
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(max(next.Sub(r.options.Now()), 10*time.Millisecond))
		}
	}
}

// lane returns which policies share a worker: those of a namespace.
func (p *plan) lane() string {
	if p.Key.Namespace != "" {
		return p.Key.Namespace
	}
	return "/" + p.Key.Name
}

// begin returns the policy that has waited the longest of those of which something can be removed, and when the next one may be; zero:
// when something changes.
func (r *Retainer) begin() (next *plan, later time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.options.Gate.IsLeading() && !r.options.DryRun {
		return nil, time.Time{}
	}
	now := r.options.Now()
	for _, p := range r.plans {
		if !p.Enforces() || !p.ready() || len(p.pending) == 0 || r.serving[p.lane()] {
			continue
		}
		if now.Before(p.waitsUntil) {
			later = earliest(later, p.waitsUntil)
			continue
		}
		batch, tried := p.batch(now)
		later = earliest(later, tried)
		if len(batch) == 0 {
			continue
		}
		if next == nil || cmp.Or(p.served.Compare(next.served), cmp.Compare(p.Policy.String(), next.Policy.String())) < 0 {
			next = p
		}
	}
	if next != nil {
		r.serving[next.lane()] = true
	}
	return next, later
}

func (r *Retainer) finish(p *plan) {
	r.mu.Lock()
	delete(r.serving, p.lane())
	p.served = r.options.Now()
	r.mu.Unlock()
	r.wakeWorkers()
	signal(r.changed)
}

// serve removes some of what a policy removes.
func (r *Retainer) serve(ctx context.Context, p *plan) {
	now := r.options.Now()
	turn := &turn{Retainer: r, p: p, live: liveUses{r, map[string]listedUses{}}}
	r.mu.Lock()
	batch, _ := p.batch(now)
	r.mu.Unlock()
	if byNumber(batch) {
		confirming, cancel := context.WithTimeout(ctx, confirmTimeout)
		same, err := turn.confirmNumbers(confirming)
		cancel()
		if err != nil {
			r.fail(p, "", err)
			r.wait(p, minFailureRetry)
		}
		if !same {
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, maxTurn+removeTimeout)
	defer cancel()
	began := time.Now()
	for _, d := range batch {
		if ctx.Err() != nil || time.Since(began) > maxTurn || !r.stillPending(p, d.UID) {
			return
		}
		if r.waits(p, d) {
			continue
		}
		if stop := turn.remove(ctx, d); stop {
			return
		}
	}
}

// stillPending reports whether a removal is still to be made: the policy may have been changed, or have decided again.
func (r *Retainer) stillPending(p *plan, uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.plans[p.Object.GetUID()] == p && p.ready() && p.Enforces() && p.isPending(uid)
}

// waits reports whether a removal has to be retried later.
func (r *Retainer) waits(p *plan, d retention.Decision) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.options.Now().Before(p.until(d))
}

// wait has the removals of a policy wait.
func (r *Retainer) wait(p *plan, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.waitsUntil = r.options.Now().Add(d)
}

// fail notes that a removal has failed, of all objects for "".
func (r *Retainer) fail(p *plan, uid types.UID, err error) (next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.options.Now()
	p.failedAt, p.failure = now, err.Error()
	p.failed++
	if uid == "" {
		return time.Time{}
	}
	f := p.failures[uid]
	f.until = now.Add(min(minFailureRetry<<min(f.count, 10), maxFailureRetry))
	f.count++
	p.failures[uid] = f
	return f.until
}

// turn is what one worker does for a policy at once.
type turn struct {
	*Retainer
	p    *plan
	live liveUses
}

// remove removes an object, if it is as it was decided about. It reports whether the turn ends.
func (t *turn) remove(ctx context.Context, d retention.Decision) (stop bool) {
	resource, served := t.options.Catalog().Preferred(d.Kind.GroupKind())
	if !served {
		t.skip(d.UID)
		return false
	}
	o, err := t.options.Reader.Get(ctx, policies.ServiceAccount{}, resource.Version, d.Namespace, d.Name)
	switch {
	case apierrors.IsNotFound(err):
		t.lost(d)
		return false
	case err != nil:
		t.fail(t.p, d.UID, fmt.Errorf("read %s: %w", d.Object, err))
		return false
	}
	o.SetGroupVersionKind(resource.GroupVersionKind())
	if o.GetUID() != d.UID {
		t.lost(d)
		return false
	}
	if t.isKept(ctx, o, d, t.keptBecause) {
		return false
	}
	evaluated, remove := t.evaluate(ctx, o, d)
	if !remove || !t.stillPending(t.p, d.UID) || t.isKept(ctx, o, d, t.usedBy) {
		return false
	}
	return t.write(ctx, o, d, evaluated)
}

// isKept reports whether an object, as it was just read, is not removed for a reason, or since it is not known whether there is one.
func (t *turn) isKept(ctx context.Context, o *unstructured.Unstructured, d retention.Decision, because func(context.Context, *unstructured.Unstructured, retention.Decision) (string, error)) bool {
	why, err := because(ctx, o, d)
	if err != nil {
		t.fail(t.p, d.UID, fmt.Errorf("confirm that %s can be removed: %w", d.Object, err))
	}
	return why != "" || err != nil
}

// lost forgets an object that does not exist.
func (t *turn) lost(d retention.Decision) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone(d.Kind.GroupKind(), d.Namespace, d.UID)
	signal(t.wake)
}

// skip does not try to remove an object again before the next evaluation.
func (t *turn) skip(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.p.skipped[uid] = true
}

// write deletes an object. It reports whether the turn ends.
func (t *turn) write(ctx context.Context, o *unstructured.Unstructured, d retention.Decision, evaluated evaluate.Result) (stop bool) {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	began := time.Now()
	target := object(o)
	action := decide.Delete{Object: target, Propagation: cmp.Or(t.p.Spec.PropagationPolicy, metav1.DeletePropagationBackground)}
	message := t.p.Limit(d.Reason)
	result, err := t.writer.Do(ctx, writer.Write{
		Origin: writer.Retention, Target: target, Effect: writer.Deletes,
		Cause: writer.Cause{Reason: string(decide.RemovedByRetention), Message: message, Policy: t.p.Policy.String()},
		Do:    func(ctx context.Context) (act.Result, error) { return t.options.Actor.Do(ctx, action) },
	})
	outcome := Outcome{
		Object: target, Policy: t.p.Retention, Reason: d.Reason, Message: message, Evaluated: evaluated, Action: action, Result: result, Err: err, Duration: time.Since(began),
	}
	switch {
	case writer.IsWait(err):
		t.wait(t.p, writer.RetryAfter(err, waitRetry))
		t.mu.Lock()
		t.p.failedAt, t.p.failure = t.options.Now(), err.Error()
		t.mu.Unlock()
		return true
	case err != nil:
		outcome.NextAttempt = t.fail(t.p, d.UID, err)
	case result == act.Done:
		t.done(d)
	case result == act.DryRun:
		t.skip(d.UID)
	case result == act.AlreadyGone:
		t.lost(d)
		return false
	default: // it has changed
		t.later(d.UID, minFailureRetry)
		return false
	}
	t.options.Record(outcome)
	return false
}

// done notes that an object was removed. Until the watch shows it, no policy counts it.
func (t *turn) done(d retention.Decision) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.p.removed[d.Reason]++
	if since, known := t.p.dueSince[d.UID]; known {
		t.p.delays.add(t.options.Now().Sub(since))
	}
	for p := range t.of(d.Kind.GroupKind(), d.Namespace) {
		p.forget(d.UID)
		if p.survey.Forget(d.UID) {
			p.change(t.options.Now())
		}
	}
	signal(t.wake)
}
