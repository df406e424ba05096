package finalizers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/policies"
)

// restartDelay is the delay before a new attempt if the resource changed during an
// evaluation.
const restartDelay = 20 * time.Millisecond

// evaluate evaluates the module and carries out its intents, round by round, until it returns
// a decision other than Act.
func (v *reconciler) evaluate(ctx context.Context) time.Duration {
	start := v.Now()
	v.item.attempt = max(v.item.attempt, v.savedState.Attempt) + 1
	request, err := v.buildRequest(ctx)
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
		if err := v.saveState(ctx, call.Verdict.State); err != nil {
			return v.finishWithError(ctx, n, err)
		}
		call.Request.State = v.savedState.State
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
		if err := v.saveFailure(ctx, verdict.Reason); err != nil {
			return v.finishWithError(ctx, n, err)
		}
		n.Reason, n.Message = Failed, v.failureMessage(v.savedState.Failed)
		return v.finish(ctx, n, v.retryDelay(n))
	case hostabi.DecisionWait:
		if wait := v.rateLimitDelay(verdict); wait > 0 {
			return v.postponeWrites(ctx, n, wait)
		}
		if err := v.saveState(ctx, verdict.State); err != nil {
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

// buildRequest builds the module's request.
func (v *reconciler) buildRequest(ctx context.Context) (r hostabi.Request, err error) {
	o := v.item.object
	r = hostabi.Request{
		APIVersion: hostabi.Version, Hook: hostabi.HookFinalize, RequestedPropagation: modulecall.RequestedPropagation(o),
		Policy: hostabi.Policy{Name: v.f.Name, Namespace: v.f.Namespace, Settings: v.f.Settings},
		Time:   v.Now().UTC().Truncate(time.Second), Attempt: v.item.attempt, State: v.savedState.State,
		NamespaceTerminating: v.namespace.Terminating,
		IdempotencyKey:       fmt.Sprintf("%s/%s/%s", o.UID, hostabi.HookFinalize, v.entry),
	}
	for _, ref := range o.Owners {
		r.Owners = append(r.Owners, hostabi.Owner{Status: hostabi.OwnerUnknown, Reference: modulecall.Reference(ref)})
	}
	if d := v.item.deadline; !d.IsZero() {
		d = d.UTC()
		r.Deadline = &d
	}
	r.ServiceAccountMissing = v.accountMissing(ctx)
	if r.Object, err = modulecall.ObjectOf(identityOf(v.object)); err != nil {
		return r, err
	}
	err = modulecall.AddObject(&r, v.f.Needs, func() (*unstructured.Unstructured, error) {
		visible, err := v.visibleObject(ctx)
		if err != nil {
			return nil, err
		}
		return withoutStateAnnotation(visible), nil
	})
	return r, err
}

// identityOf returns the part of an object that needs no permission: its identity, its
// finalizers and its deletionTimestamp.
func identityOf(o *unstructured.Unstructured) *unstructured.Unstructured {
	b := &unstructured.Unstructured{Object: map[string]any{}}
	b.SetGroupVersionKind(o.GroupVersionKind())
	b.SetNamespace(o.GetNamespace())
	b.SetName(o.GetName())
	b.SetUID(o.GetUID())
	b.SetResourceVersion(o.GetResourceVersion())
	b.SetFinalizers(o.GetFinalizers())
	b.SetDeletionTimestamp(o.GetDeletionTimestamp())
	return b
}

// withoutStateAnnotation returns the object without the state annotation: a module receives its own state
// in the request.
func withoutStateAnnotation(o *unstructured.Unstructured) *unstructured.Unstructured {
	annotations := o.GetAnnotations() // a copy
	if _, own := annotations[objectstate.FinalizersAnnotation]; !own {
		return o
	}
	o = o.DeepCopy()
	delete(annotations, objectstate.FinalizersAnnotation)
	if len(annotations) == 0 {
		annotations = nil
	}
	o.SetAnnotations(annotations)
	return o
}

// visibleObject returns the object as the finalizer's module may read it: a namespaced finalizer
// reads as its service account. The error is a *modulecall.WithheldError if that account may
// not read the object.
func (v *reconciler) visibleObject(ctx context.Context) (*unstructured.Unstructured, error) {
	own := func() (*unstructured.Unstructured, error) { return v.object, nil }
	return modulecall.Visible(v.f.Policy, v.f.String(), own, func(account policies.ServiceAccount) (*unstructured.Unstructured, error) {
		o, err := v.Reader.Get(ctx, account, v.resource.Version, v.key.namespace, v.key.name)
		if err == nil && o.GetUID() != v.key.uid {
			return nil, fmt.Errorf("read object as %s/%s: the UID has changed", account.Namespace, account.Name)
		}
		return o, err
	})
}

var serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}

// An accountLookup is a cached lookup of the finalizer's service account.
type accountLookup struct {
	account policies.ServiceAccount
	time    time.Time
	missing bool
}

// accountCacheTTL is how long a lookup is cached.
const accountCacheTTL = 5 * time.Second

// accountMissing reports whether the finalizer's service account is known not to
// exist. Other read errors prove nothing.
func (v *reconciler) accountMissing(ctx context.Context) bool {
	a, now := v.f.ServiceAccount, v.Now()
	if a == (policies.ServiceAccount{}) {
		return false
	}
	v.mu.Lock()
	seen := v.accountLookup
	v.mu.Unlock()
	if seen.account == a && now.Sub(seen.time) < accountCacheTTL {
		return seen.missing
	}
	_, err := v.Reader.Get(ctx, policies.ServiceAccount{}, serviceAccounts, a.Namespace, a.Name)
	seen = accountLookup{account: a, time: now, missing: err != nil && catalog.ConfirmsNotFound(err, serviceAccounts.GroupResource(), a.Name)}
	v.mu.Lock()
	v.accountLookup = seen
	v.mu.Unlock()
	return seen.missing
}
