package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/gleaner-dev/gleaner/policies"
)

// subject returns what is quarantined when the module cannot be started for the
// policy.
func (p *Policy) subject() subject {
	return subject{scope: scopeOf(p.namespace), digest: p.module.Digest, policy: p.name, limits: p.limits}
}

// run runs a function in a worker that has started the policy, for an object in a
// namespace. If quick is not nil, and the policy is started already, it is tried
// first: see call.
func (p *Policy) run(ctx context.Context, namespace string, quick func(*process) (policies.Evaluation, bool, error),
	do func(*process) (policies.Evaluation, error),
) (policies.Evaluation, error) {
	pool, starting := p.module.pool, p.subject()
	evaluating := starting
	evaluating.evaluating, evaluating.namespace = true, namespace
	for _, who := range []subject{starting, evaluating} {
		if found, in := pool.quarantine.check(who); in {
			return policies.Evaluation{}, p.quarantined(found)
		}
	}
	first := func(w *process) (answer policies.Evaluation, answered bool, err error) {
		if quick == nil || !p.isStarted(w) {
			return answer, false, nil
		}
		if answer, answered, err = quick(w); answered && err == nil {
			pool.quarantine.remove(evaluating)
		}
		return answer, answered, err
	}
	who := starting // of the call's goroutine
	return call(ctx, pool.running[starting.scope], p.lane(namespace), p.isStarted, first, func(w *process) (policies.Evaluation, error) {
		who = starting
		if !p.isStarted(w) {
			if err := p.prepare(w); err != nil {
				return policies.Evaluation{}, err
			}
			pool.quarantine.remove(starting)
		}
		who = evaluating
		answer, err := do(w)
		if err == nil {
			pool.quarantine.remove(evaluating)
		}
		return answer, err
	}, func(death *exitError) error { return p.quarantine(who, death) })
}

// lane returns the fairness lane of a call.
func (p *Policy) lane(namespace string) string {
	if p.namespace != "" {
		return p.namespace
	}
	return namespace
}

// quarantine quarantines a subject whose worker has ended, and returns the error for
// it.
func (p *Policy) quarantine(who subject, death *exitError) error {
	pool := p.module.pool
	found := pool.quarantine.add(who, death.cause, death.detail)
	pool.config.Log.Info("Sandbox worker ended during a call, module is quarantined",
		"policy", p.name, "namespace", who.namespace, "cause", death.cause, "detail", death.detail, "until", found.until)
	return p.quarantined(found)
}

// quarantined returns a fault if the module is known to have ended its worker.
// Otherwise the host is at fault, and the object is kept whatever onFault is.
func (p *Policy) quarantined(s quarantineEntry) error {
	if !s.cause.causedByModule() {
		return fmt.Errorf("evaluate policy %s: %s", p.name, s.message())
	}
	kind := policies.FaultCrashed
	if s.cause == CauseTime {
		kind = policies.FaultTimedOut
	}
	return &policies.Fault{Policy: p.name, Kind: kind, Message: s.message()}
}

// call runs a function in a worker. If the context ends first, it returns
// immediately, and the worker continues within its limits.
//
// A function that takes little time is tried on the caller's goroutine first, if
// quick is not nil. If quick returns false, do takes over.
//
// If the worker ends, and has run something else before, that may be the cause. So
// the function is run once more, in a new worker: died is called only if that one
// ends as well.
func call[T any](ctx context.Context, g *group, namespace string, prefer func(*process) bool,
	quick func(*process) (T, bool, error), do func(*process) (T, error), died func(*exitError) error,
) (T, error) {
	var none T
	w, err := g.acquire(ctx, namespace, prefer)
	if err != nil {
		return none, err
	}
	began := time.Now()
	if quick != nil {
		if value, answered, err := quick(w); answered {
			defer g.pool.calls.Done()
			g.release(w, namespace, time.Since(began))
			return value, err
		}
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		defer g.pool.calls.Done()
		value, err := do(w)
		if w.exit != nil && w.calls > 0 && w.exit.cause != CauseClosed {
			if w, err = g.replace(w, namespace, time.Since(began)); err != nil {
				done <- result{none, err}
				return
			}
			began = time.Now()
			value, err = do(w)
		}
		switch {
		case w.exit == nil:
			g.release(w, namespace, time.Since(began))
		case w.exit.cause == CauseClosed:
			value, err = none, errClosed
			g.end(w, namespace, time.Since(began), w.exit)
		default:
			value, err = none, died(w.exit)
			g.end(w, namespace, time.Since(began), w.exit)
		}
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, fmt.Errorf("wait for a sandbox worker: %w", context.Cause(ctx))
	}
}
