package finalizers

import (
	"context"
	"fmt"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/intents"
)

// maxRateLimitDelay is the maximum delay after a module has hit the rate limit repeatedly.
const maxRateLimitDelay = time.Minute

// rateLimitDelay returns the delay until the rate limit admits the writes of a verdict; 0: they are
// admitted and counted. An attempt with admitted writes may finish: otherwise it would
// start again, and repeat them.
func (v *reconciler) rateLimitDelay(verdict hostabi.Verdict) (wait time.Duration) {
	states, effects := 0, 0
	if v.state.persists() && v.state.changed(verdict.State) {
		states = 1
	}
	for _, intent := range verdict.Intents {
		if intents.HasEffects(intent) {
			effects++
		}
	}
	name, namespace, now := v.f.String(), v.key.namespace, v.Now()
	switch {
	case states+effects == 0:
		return 0
	case v.charged:
		v.EffectLimiter.Charge(name, namespace, effects, now)
		v.StateLimiter.Charge(name, namespace, states, now)
		return 0
	}
	if wait = v.EffectLimiter.Take(name, namespace, effects, now); wait == 0 {
		wait = v.StateLimiter.Take(name, namespace, states, now)
	}
	v.charged = wait == 0
	return wait
}

// postponeWrites handles a verdict whose writes exceed the rate limit.
func (v *reconciler) postponeWrites(ctx context.Context, n Outcome, wait time.Duration) time.Duration {
	wait = max(wait, backoff(time.Duration(hostabi.MinWait), v.item.rateLimited, maxRateLimitDelay))
	v.item.rateLimited++
	n.Reason, n.Message = RateLimited, fmt.Sprintf("writes of %s, or of all modules for objects in this namespace, exceed the rate limit: "+
		"return longer waits, and change the state less often", v.f)
	return v.finish(ctx, n, wait)
}
