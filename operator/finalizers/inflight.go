package finalizers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
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

// slowIntentAfter is the time after which an intent in flight is reported.
const slowIntentAfter = 5 * time.Second

// deleteRetry is when an intent is retried that deletes an object and has to wait, such as for a budget: nothing tells the
// finalizer when it is its turn.
const deleteRetry = 2 * time.Second

// An inFlightIntent is an intent that is being carried out, or a call of a Handler. The zero inFlightIntent is none.
type inFlightIntent struct {
	description string
	since       time.Time
}

// stuck returns a Stuck and true if the intent has been in flight for too long.
func (f inFlightIntent) stuck(t *pendingObject, now time.Time) (Stuck, bool) {
	if f.description == "" || now.Sub(f.since) < slowIntentAfter {
		return Stuck{}, false
	}
	s := Stuck{
		Object: t.object, Reason: noResponse, Since: f.since, Deadline: t.deadline,
		Message: fmt.Sprintf("%s: no response since %s", f.description, f.since.UTC().Format(time.RFC3339)),
	}
	if _, is := stuckReasons[t.reason]; is { // was stuck before
		s.Since = t.since
		s.Message += "; previously: " + t.message
	}
	return s, true
}

// executeIntent carries out an intent. If that takes long, the object is reported as stuck.
// The error means that it was stopped.
func (v *reconciler) executeIntent(ctx context.Context, identity intents.Identity, intent hostabi.Intent) (hostabi.Result, error) {
	defer v.reportSlow(intents.Describe(intent))()
	if !intents.HasEffects(intent) {
		return v.Intents.Do(ctx, identity, intent), nil
	}
	return v.executeEffect(ctx, identity, intent)
}

// reportSlow has the object reported as stuck if something is in flight for too long, until it
// has ended.
func (v *reconciler) reportSlow(description string) (ended func()) {
	v.setInFlight(inFlightIntent{description, v.Now()})
	timer := time.AfterFunc(slowIntentAfter, v.ProgressChanged)
	return func() {
		v.setInFlight(inFlightIntent{})
		if !timer.Stop() {
			v.ProgressChanged()
		}
	}
}

// executeEffect carries out an intent with effects, if the steps of the writer admit it.
func (v *reconciler) executeEffect(ctx context.Context, identity intents.Identity, intent hostabi.Intent) (r hostabi.Result, err error) {
	sent := false
	result, err := v.writer.Do(ctx, writer.Write{
		Origin: v.origin(), Target: v.target(), Effect: writer.External, Cause: v.cause(),
		Do: func(ctx context.Context) (act.Result, error) {
			return v.countDelete(ctx, intent, func(ctx context.Context) (act.Result, error) {
				r, sent = v.Intents.Do(ctx, identity, intent), true
				if r.Error != nil {
					return act.Failed, fmt.Errorf("%s: %s", r.Error.Reason, r.Error.Message)
				}
				return act.Done, nil
			})
		},
	})
	switch {
	case sent:
		return r, nil // the module reacts to an error
	case err == nil && result == act.Changed:
		err = errChanged
	}
	if err != nil {
		err = fmt.Errorf("carry out %s: %w", intents.Describe(intent), err)
	}
	return r, err
}

// countDelete makes a call. If that deletes an object, it is also a write of that object: pauses and budgets apply to it, and
// the object is archived before.
func (v *reconciler) countDelete(ctx context.Context, intent hostabi.Intent, do func(context.Context) (act.Result, error)) (act.Result, error) {
	if intent.Delete == nil {
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

// deleted returns the object that an intent deletes. It returns false if that doesn't exist.
func (v *reconciler) deleted(ctx context.Context, d *hostabi.DeleteIntent) (target graph.Object, exists bool, err error) {
	if target, exists = v.Lookup(types.UID(d.UID)); exists {
		return target, true, nil
	}
	resource, served := v.Catalog().Resource(schema.FromAPIVersionAndKind(d.APIVersion, d.Kind))
	if !served {
		return graph.Object{}, false, nil
	}
	namespace := d.Namespace
	if !resource.Namespaced {
		namespace = ""
	}
	live, err := v.Reader.Get(ctx, policies.ServiceAccount{}, resource.Version, namespace, d.Name)
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

func (v *reconciler) setInFlight(f inFlightIntent) {
	v.mu.Lock()
	defer v.mu.Unlock()
	t, ok := v.pending[v.key.uid]
	if !ok {
		return
	}
	t.inFlight = f
	t.object, t.deadline, t.deleted = v.item.object, v.item.deadline, v.item.deleted
	t.object.Owners, t.object.Finalizers = nil, nil
}

// failedIntent describes the first intent whose last result is a failure that blocks the
// module; "" if there is none. Errors that modules expect, such as NotFound, do not count.
func (n Outcome) failedIntent() string {
	last := map[string]IntentResult{}
	for _, c := range n.Intents {
		last[c.Intent.ID] = c
	}
	for _, c := range n.Intents {
		if failure := last[c.Intent.ID].failure(); failure != "" && c.Intent.Event == nil {
			return intents.Describe(c.Intent) + ": " + failure
		}
	}
	return ""
}

// failure returns why an intent failed; "" if it did not.
func (c IntentResult) failure() string {
	if e := c.Result.Error; e != nil {
		switch e.Reason {
		case hostabi.ErrorNotFound, hostabi.ErrorAlreadyExists, hostabi.ErrorConflict, hostabi.ErrorExpired:
			return ""
		default:
			return fmt.Sprintf("%s (%s)", e.Reason, e.Message)
		}
	}
	if c.Result.HTTP == nil {
		return ""
	}
	switch status := c.Result.HTTP.Status; {
	case status >= http.StatusInternalServerError, status == http.StatusUnauthorized, status == http.StatusForbidden,
		status == http.StatusRequestTimeout, status == http.StatusTooManyRequests:
		return cmp.Or(http.StatusText(status), "status") + fmt.Sprintf(" (%d)", status)
	default:
		return ""
	}
}

// waitReason returns the reason and message of a Wait verdict.
func (n Outcome) waitReason() (Reason, string) {
	obstacle := n.failedIntent()
	switch {
	case obstacle == "":
		return Waiting, n.Message
	case n.Message == "":
		return Blocked, obstacle
	default:
		return Blocked, n.Message + ": " + obstacle
	}
}
