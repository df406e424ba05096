package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/gleaner-dev/gleaner/policies"
)

// subject is what is quarantined when the module can't be started for the policy.
func (p *Policy) subject() subject {
	return subject{scope: scopeOf(p.namespace), digest: p.module.Digest, policy: p.name, limits: p.limits}
}

// run does something in a worker that has the policy started, for an object of a namespace.
// If quick is not nil, and the policy is started already, that is tried first: see call.
func (p *Policy) run(ctx context.Context, namespace string, quick func(*process) (policies.Answer, bool, error),
	do func(*process) (policies.Answer, error),
) (policies.Answer, error) {
	pool, starting := p.module.pool, p.subject()
	evaluating := starting
	evaluating.evaluating, evaluating.namespace = true, namespace
	for _, who := range []subject{starting, evaluating} {
		if found, in := pool.quarantine.check(who); in {
			return policies.Answer{}, p.quarantined(found)
		}
	}
	first := func(w *process) (answer policies.Answer, answered bool, err error) {
		if quick == nil || !p.isStarted(w) {
			return answer, false, nil
		}
		if answer, answered, err = quick(w); answered && err == nil {
			pool.quarantine.clear(evaluating)
		}
		return answer, answered, err
	}
	who := starting // of the call's goroutine
	return call(ctx, pool.running[starting.scope], p.lane(namespace), p.isStarted, first, func(w *process) (policies.Answer, error) {
		who = starting
		if !p.isStarted(w) {
			if err := p.prepare(w); err != nil {
				return policies.Answer{}, err
			}
			pool.quarantine.clear(starting)
		}
		who = evaluating
		answer, err := do(w)
		if err == nil {
			pool.quarantine.clear(evaluating)
		}
		return answer, err
	}, func(death *deathError) error { return p.sentence(who, death) })
}

// lane is whose turn a call takes.
func (p *Policy) lane(namespace string) string {
	if p.namespace != "" {
		return p.namespace
	}
	return namespace
}

// sentence quarantines a subject whose worker has ended, and returns the error that says so.
func (p *Policy) sentence(who subject, death *deathError) error {
	pool := p.module.pool
	found := pool.quarantine.add(who, death.cause, death.detail)
	pool.config.Log.Info("Sandbox worker ended during a call, module is quarantined",
		"policy", p.name, "namespace", who.namespace, "cause", death.cause, "detail", death.detail, "until", found.until)
	return p.quarantined(found)
}

// quarantined is a fault of the module where it is known to have ended its worker. Where it
// is not, the host is at fault, and the object is kept whatever onFault says.
func (p *Policy) quarantined(s sentence) error {
	if !s.cause.guilty() {
		return fmt.Errorf("evaluate policy %s: %s", p.name, s.message())
	}
	kind := policies.FaultCrashed
	if s.cause == CauseTime {
		kind = policies.FaultTimedOut
	}
	return &policies.Fault{Policy: p.name, Kind: kind, Message: s.message()}
}

// call has a worker do something. If the context ends first the caller is told so at once,
// and the worker goes on for as long as it may.
//
// What takes next to no time is tried on the caller's goroutine first, if quick is not nil.
// When that reports false, do takes it up.
//
// If the worker ends, and had done something else before, that may be the cause. So it is
// done once more, in a new worker: only what ends that one as well is passed to died.
func call[T any](ctx context.Context, g *group, namespace string, prefer func(*process) bool,
	quick func(*process) (T, bool, error), do func(*process) (T, error), died func(*deathError) error,
) (T, error) {
	var none T
	w, err := g.take(ctx, namespace, prefer)
	if err != nil {
		return none, err
	}
	began := time.Now()
	if quick != nil {
		if value, answered, err := quick(w); answered {
			defer g.pool.calls.Done()
			g.put(w, namespace, time.Since(began))
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
		if w.dead != nil && w.calls > 0 && w.dead.cause != CauseClosed {
			if w, err = g.replace(w, namespace, time.Since(began)); err != nil {
				done <- result{none, err}
				return
			}
			began = time.Now()
			value, err = do(w)
		}
		switch {
		case w.dead == nil:
			g.put(w, namespace, time.Since(began))
		case w.dead.cause == CauseClosed:
			value, err = none, errClosed
			g.end(w, namespace, time.Since(began), w.dead)
		default:
			value, err = none, died(w.dead)
			g.end(w, namespace, time.Since(began), w.dead)
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
