package finalize

import (
	"context"
	"fmt"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/intents"
)

// limitedAtLast bounds the wait after a module asked for too much several times in a row.
const limitedAtLast = time.Minute

// limit says how long to wait until what a verdict has written may be; 0: it may be
// now, and is counted. What an attempt has begun with it may finish: it would begin
// anew otherwise, and do the same things again.
func (v *visitor) limit(verdict hostabi.Verdict) (wait time.Duration) {
	states, effects := 0, 0
	if v.remembers() && v.isNew(verdict.State) {
		states = 1
	}
	for _, intent := range verdict.Intents {
		if !intents.OnlyReads(intent) && intent.Type() != hostabi.IntentEvent { // events have bounds of their own
			effects++
		}
	}
	name, namespace, now := v.f.String(), v.key.namespace, v.Now()
	switch {
	case states+effects == 0:
		return 0
	case v.counted:
		v.Effects.Charge(name, namespace, effects, now)
		v.States.Charge(name, namespace, states, now)
		return 0
	}
	if wait = v.Effects.Take(name, namespace, effects, now); wait == 0 {
		wait = v.States.Take(name, namespace, states, now)
	}
	v.counted = wait == 0
	return wait
}

// limited keeps the object since its module asks for more than may be written now.
func (v *visitor) limited(ctx context.Context, n Note, wait time.Duration) time.Duration {
	wait = max(wait, double(time.Duration(hostabi.MinWait), v.track.limited, limitedAtLast))
	v.track.limited++
	n.Reason, n.Message = Limited, fmt.Sprintf("modules of %s, or about objects of its namespace, ask for more writes than there may be in a time: "+
		"have the module wait for longer, and change its state less often", v.f)
	return v.conclude(ctx, n, wait)
}
