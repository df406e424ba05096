package collector

import (
	"time"

	"github.com/gleaner-dev/gleaner/operator/decide"
)

// maxLimitedDoublings is how often the wait of a rate-limited object is doubled.
const maxLimitedDoublings = 6

// limit delays the decision about an object if its policy has reached the limit for state
// writes. The first state of an object is always written: it has the time since when it
// has had no owner.
func (c *Collector) limit(d Decision) decide.Plan {
	plan := d.Plan
	save, ok := plan.Action.(decide.SaveState)
	if !ok || plan.RequeueAfter == 0 || d.Result.StoredState.UID == "" {
		return plan
	}
	policy := d.Evaluation.PolicyName(c.defaultName)
	wait := c.options.StateLimiter.Take(policy, save.Object.Namespace, 1, c.options.Now())
	if wait == 0 {
		return plan
	}
	c.options.Recorder.RecordStateLimited(policy)
	return decide.Plan{Reason: decide.PolicyRateLimited, RequeueAfter: max(wait, plan.RequeueAfter, time.Second<<min(d.Result.Attempt, maxLimitedDoublings))}
}
