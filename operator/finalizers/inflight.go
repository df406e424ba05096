package finalizers

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

// slowIntentAfter is the time after which an intent in flight is reported.
const slowIntentAfter = 5 * time.Second

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
		Object: t.object, Reason: noResponse, Attempts: t.attempt, Since: f.since, Deadline: t.deadline,
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
			return v.countDelete(ctx, identity, intent, func(ctx context.Context) (act.Result, error) {
				r, sent = v.Intents.Do(ctx, identity, intent), true
				return outcomeOf(r)
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
