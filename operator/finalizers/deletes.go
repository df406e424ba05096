package finalizers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/operator/writer"
	"github.com/gleaner-dev/gleaner/policies"
)

// deleteRetry is when an intent that deletes an object is retried after it had to wait, such as for a deletion budget.
// Nothing queues the finalizer's object when the budget is available.
const deleteRetry = 2 * time.Second

// countDelete makes a call. If it deletes an object, it is also a write of that object: pauses and budgets apply to it, and
// the object is archived before. A request that is not granted, or that names no object, is none: otherwise a module could
// use up the budgets of other namespaces.
func (v *reconciler) countDelete(ctx context.Context, identity intents.Identity, intent hostabi.Intent, do func(context.Context) (act.Result, error)) (act.Result, error) {
	if intent.Delete == nil || !v.MayDelete(identity, *intent.Delete) {
		return do(ctx)
	}
	target, exists, err := v.deleted(ctx, intent.Delete)
	switch {
	case err != nil:
		return act.Failed, err
	case !exists:
		return do(ctx) // for its result
	}
	result, err := v.writer.Do(ctx, writer.Write{Origin: v.origin(), Target: target, Effect: writer.Deletes, Cause: v.cause(), Do: do})
	if stopped := (*writer.StoppedError)(nil); errors.As(err, &stopped) && stopped.Retry > deleteRetry {
		return result, &writer.StoppedError{Outcome: stopped.Outcome, Reason: stopped.Reason, Retry: deleteRetry}
	}
	return result, err
}

// deleted returns the object that an intent deletes. It returns false if that does not exist. Its type is served now: an intent
// about another one is not granted.
func (v *reconciler) deleted(ctx context.Context, d *hostabi.DeleteIntent) (target graph.Object, exists bool, err error) {
	kind := schema.FromAPIVersionAndKind(d.APIVersion, d.Kind)
	seen, ok := v.Lookup(types.UID(d.UID))
	if ok && seen.Kind.GroupKind() == kind.GroupKind() && seen.Namespace == d.Namespace && seen.Name == d.Name {
		return seen, true, nil
	}
	resource, served := v.Catalog().Resource(kind)
	if !served {
		return graph.Object{}, false, fmt.Errorf("%s is not served", kind)
	}
	live, err := v.Reader.Get(ctx, policies.ServiceAccount{}, resource.Version, d.Namespace, d.Name)
	switch {
	case catalog.ConfirmsNotFound(err, resource.Version.GroupResource(), d.Name):
		return graph.Object{}, false, nil
	case err != nil:
		return graph.Object{}, false, err
	case string(live.GetUID()) != d.UID:
		return graph.Object{}, false, nil
	}
	return graph.ObjectOf(resource.GroupVersionKind(), live), true, nil
}

// outcomeOf returns what is known of a write from the result of its intent. A request that was refused has changed nothing.
func outcomeOf(r hostabi.Result) (act.Result, error) {
	if r.Error == nil {
		return act.Done, nil
	}
	switch r.Error.Reason {
	case hostabi.ErrorNotFound:
		return act.AlreadyGone, nil
	case hostabi.ErrorNotGranted, hostabi.ErrorForbidden, hostabi.ErrorConflict, hostabi.ErrorInvalid, hostabi.ErrorAlreadyExists:
		return act.Changed, nil
	default:
		return act.Failed, fmt.Errorf("%s: %s", r.Error.Reason, r.Error.Message)
	}
}
