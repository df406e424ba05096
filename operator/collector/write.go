package collector

import (
	"context"

	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

// write carries out an action, if the steps of the writer admit it. For nil, it returns
// Done.
func (c *Collector) write(ctx context.Context, action decide.Action) (act.Result, error) {
	if action == nil {
		return act.Done, nil
	}
	target, _ := decide.Target(action)
	return c.writer.Do(ctx, writer.Write{
		Origin: writer.Collector, Target: target, Effect: effectOf(action),
		Do: func(ctx context.Context) (act.Result, error) { return c.actor.Do(ctx, action) },
	})
}

// effectOf returns the effect of an action. One without an effect here is not carried out.
func effectOf(action decide.Action) writer.Effect {
	switch action.(type) {
	case decide.Delete, decide.Propagate:
		return writer.Deletes
	case decide.DropReferences:
		return writer.Orphans
	case decide.RemoveFinalizer, decide.Unblock:
		return writer.Releases
	case decide.AddFinalizer:
		return writer.Protects
	case decide.SaveState, decide.RemoveState:
		return writer.State
	default:
		return ""
	}
}
