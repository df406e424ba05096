package finalizers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
)

// restartDelay is the delay before a new attempt if the resource changed during an
// evaluation.
const restartDelay = 20 * time.Millisecond

// evaluate evaluates the module and carries out its intents, round by round, until it returns
// a decision other than Act.
func (v *reconciler) evaluate(ctx context.Context) time.Duration {
	start := v.Now()
	v.setEvaluated(v.key.uid)
	v.item.attempt = max(v.item.attempt, v.state.saved.Attempt) + 1
	request, err := v.buildRequest(ctx, &v.item, v.state.saved.State)
	if err != nil {
		return v.finishWithError(ctx, Outcome{}, err)
	}
	n := Outcome{Evaluated: true}
	call := modulecall.Call{Evaluator: v.f.Evaluator, Request: request}
	for {
		requested := call.Next(ctx)
		if v.stopped(ctx) {
			return minRetryDelay // the next leader evaluates again
		}
		n.Rounds, n.Exchanges, n.Fuel = call.Rounds, call.Exchanges, call.Fuel
		n.Verdict, n.Fault, n.Duration = call.Verdict, call.Fault, v.Now().Sub(start)
		if v.outdated() {
			return v.restart(ctx, n)
		}
		if !requested {
			return v.applyVerdict(ctx, n)
		}
		if effect := v.firstEffect(call.Verdict.Intents); effect != "" {
			n.Reason, n.Message = Monitored, "the module requested "+effect+", which is not carried out (mode: Monitor)"
			return v.finish(ctx, n, v.retryDelay(n))
		}
		if wait := v.rateLimitDelay(call.Verdict); wait > 0 {
			return v.postponeWrites(ctx, n, wait)
		}
		if err := v.state.save(ctx, call.Verdict.State); err != nil {
			return v.finishWithError(ctx, n, err)
		}
		call.Request.State = v.state.saved.State
		err := v.executeIntents(ctx, &n, &call)
		switch {
		case v.stopped(ctx):
			return minRetryDelay
		case v.outdated():
			return v.restart(ctx, n)
		case err != nil:
			return v.finishWithError(ctx, n, err)
		}
	}
}

// outdated reports whether the verdict is outdated: the resource has changed since the
// evaluation began, or the object is gone. Rounds can take minutes.
func (v *reconciler) outdated() bool {
	current := v.finalizer()
	return !current.Equivalent(v.f.Finalizer) || current.shared != v.f.shared || !v.isPending(v.key.uid)
}

// restart records what was done so far, and requeues the object immediately.
func (v *reconciler) restart(ctx context.Context, n Outcome) time.Duration {
	v.item.evaluatedBy = nil
	n.Reason, n.Message, n.Fault = Waiting, "the resource changed or the object was deleted during the evaluation: retrying", nil
	return v.finish(ctx, n, restartDelay)
}

// firstEffect describes the first intent with effects, which is not carried out in Monitor
// mode; "" if there is none.
func (v *reconciler) firstEffect(requested []hostabi.Intent) string {
	if v.f.Enforce {
		return ""
	}
	for _, intent := range requested {
		if !intents.OnlyReads(intent) {
			return intents.Describe(intent)
		}
	}
	return ""
}

// executeIntents carries out the module's intents, until one of them is stopped: that is the
// error. What goes wrong otherwise is a result for the module.
func (v *reconciler) executeIntents(ctx context.Context, n *Outcome, call *modulecall.Call) (err error) {
	apiVersion, kind := v.item.object.Kind.ToAPIVersionAndKind()
	identity := intents.Identity{
		Namespace: v.f.Namespace, Name: v.f.String(), Account: v.f.ServiceAccount, Grants: v.f.Grants, ReadOnly: !v.f.Enforce,
		InvolvedObject: &corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: v.key.namespace, Name: v.key.name, UID: v.key.uid},
	}
	call.CarryOut(func(intent hostabi.Intent) (r hostabi.Result, interrupted bool) {
		if v.stopped(ctx) || v.outdated() {
			return r, true
		}
		if r, err = v.executeIntent(ctx, identity, intent); err != nil {
			return r, true
		}
		v.item.wrote = v.item.wrote || writesObjects(intent) && r.Error == nil
		n.Intents = append(n.Intents, IntentResult{intent, r})
		return r, false
	})
	return err
}

// writesObjects reports whether an intent writes an object, possibly the one being finalized.
func writesObjects(intent hostabi.Intent) bool {
	switch intent.Type() {
	case hostabi.IntentCreate, hostabi.IntentDelete, hostabi.IntentPatch:
		return true
	default:
		return false
	}
}

// applyVerdict applies the final verdict of an attempt.
func (v *reconciler) applyVerdict(ctx context.Context, n Outcome) time.Duration {
	verdict := n.Verdict
	n.Message = verdict.Reason
	if n.Fault != nil {
		n.Reason, n.Message = Fault, n.Fault.Error()
		return v.finish(ctx, n, v.retryDelay(n))
	}
	if !v.f.Enforce && verdict.Decision != hostabi.DecisionWait {
		n.Reason, n.Message = Monitored, fmt.Sprintf("the module returned %s, which is not applied (mode: Monitor)", verdict.Decision)
		return v.finish(ctx, n, v.retryDelay(n))
	}
	switch verdict.Decision {
	case hostabi.DecisionDone:
		n.Reason = Done
		return v.removeFinalizer(ctx, n)
	case hostabi.DecisionFail:
		if err := v.state.saveFailure(ctx, verdict.Reason); err != nil {
			return v.finishWithError(ctx, n, err)
		}
		n.Reason, n.Message = Failed, v.f.failureMessage(v.state.saved.Failed)
		return v.finish(ctx, n, v.retryDelay(n))
	case hostabi.DecisionWait:
		if wait := v.rateLimitDelay(verdict); wait > 0 {
			return v.postponeWrites(ctx, n, wait)
		}
		if err := v.state.save(ctx, verdict.State); err != nil {
			return v.finishWithError(ctx, n, err)
		}
		n.Reason, n.Message = n.waitReason()
		v.item.failures, v.item.rateLimited = 0, 0
		return v.finish(ctx, n, verdict.WaitFor())
	default: // rejected by the parser already
		n.Fault = fmt.Errorf("unknown decision %q", verdict.Decision)
		n.Reason, n.Message = Fault, n.Fault.Error()
		return v.finish(ctx, n, v.retryDelay(n))
	}
}
