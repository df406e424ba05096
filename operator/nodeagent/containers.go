package nodeagent

import (
	"context"

	"github.com/gleaner-dev/gleaner/operator/noderetention"
)

// containerRound looks at containers. Its error says why the runtime can't be asked.
func (a *Agent) containerRound(ctx context.Context, policies []noderetention.Policy) error {
	n, err := a.Runtime.Containers(ctx)
	if err != nil {
		return err
	}
	n = a.complete(ctx, n, false)
	results := noderetention.PlanContainers(n, policies, a.now)
	a.report.containers(n, results)
	if enforced(results) == 0 {
		return nil
	}
	if n = a.complete(ctx, n, true); !n.Complete {
		return nil
	}
	removed := 0
	for _, r := range noderetention.PlanContainers(n, policies, a.now) {
		for _, i := range r.Removals {
			if !r.Policy.Enforce || removed == maxRemovals || ctx.Err() != nil || !a.unchanged(policies) {
				break
			}
			removed++
			if err := a.removeContainer(ctx, r.Policy, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// enforced returns how many removals are carried out.
func enforced(results []noderetention.Result) (n int) {
	for _, r := range results {
		if r.Policy.Enforce {
			n += len(r.Removals)
		}
	}
	return n
}

// removeContainer removes a container if it has not been started again. Its error says why the runtime can't be asked: a removal
// that fails stops no other (P-18).
func (a *Agent) removeContainer(ctx context.Context, p noderetention.Policy, i noderetention.Item) error {
	exited, err := a.Runtime.Exited(ctx, i.ID)
	if err != nil || !exited {
		return err
	}
	a.done(Container, p, i, a.Runtime.RemoveContainer(ctx, i.ID))
	return nil
}
