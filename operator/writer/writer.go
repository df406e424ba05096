// Package writer carries out writes to users' objects: each passes through a list of steps,
// any of which may stop it, and then the call is made.
//
// It decides nothing, keeps nothing from one write to the next, and never sleeps: a write
// that has to wait is stopped, and its caller decides again later. Status, events, leases,
// canaries and admission objects are not writes in this sense.
package writer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// Origin is the component that writes.
type Origin string

// The origins of writes.
const (
	Collector  Origin = "collector"
	Finalizers Origin = "finalizers"
	Archive    Origin = "archive" // the finalizers of archive policies
	Retention  Origin = "retention"
	Webhooks   Origin = "webhooks" // on any replica
)

// Effect is what a write does. A write with any other effect than these is stopped.
type Effect string

// The effects of writes.
const (
	Deletes  Effect = "deletes"  // requests the deletion of the target
	Releases Effect = "releases" // removes what keeps the target, or lets its owner be deleted before it
	Orphans  Effect = "orphans"  // removes owner references of the target
	Protects Effect = "protects" // adds a finalizer to the target
	State    Effect = "state"    // writes or removes a state annotation of the target
	External Effect = "external" // what a module requests: of other objects, or of a server
)

func (e Effect) known() bool {
	switch e {
	case Deletes, Releases, Orphans, Protects, State, External:
		return true
	default:
		return false
	}
}

// Cause is why a write is made, for steps that keep it, and for those that are limited to what a
// policy has decided. The zero Cause means that it is not known.
type Cause struct {
	Reason  string    // of the decision
	Message string    // of the verdict, or of what was found
	Policy  string    // or finalizer that decided, as its String method returns it; "": none
	Owner   types.UID // because of whose deletion the target is deleted
}

// Write is one call that changes a user's object, or reaches outside the cluster. All
// fields but Cause and References are required.
type Write struct {
	Origin Origin
	Target graph.Object // as it was decided about; for External, the object that the module is evaluated for
	Effect Effect
	Cause  Cause

	// References are the owner references that the write removes because their owners are absent;
	// not those of owners that orphan the target.
	References []metav1.OwnerReference

	// Do makes the call. It is called at most once, after all steps have admitted the write.
	Do func(context.Context) (act.Result, error)
}

// Outcome is what a step decides about a write.
type Outcome string

// The outcomes. Any other, such as the zero Outcome, stops the write like Refuse.
const (
	Pass    Outcome = "Pass"    // the next step is asked
	Wait    Outcome = "Wait"    // not now: the caller decides again soon, and records nothing
	Refuse  Outcome = "Refuse"  // the write has failed, and is retried like any that fails
	Changed Outcome = "Changed" // the target differs from what was decided about
)

// Admission is a step's answer about a write. The zero Admission stops it.
type Admission struct {
	Outcome Outcome
	Reason  string // for people, if the write is stopped

	// Retry is when a write that has to wait is decided about again, unless something queues its
	// object before; 0: soon.
	Retry time.Duration
}

// Settlement is how a write that a step has admitted has ended. The zero Settlement is that
// of a write that was not sent.
type Settlement struct {
	Sent   bool // the call was made; if Err is set, it may or may not have had an effect
	Result act.Result
	Err    error
}

// Step is something that each write passes before it is made. Its methods may be called
// concurrently.
type Step interface {
	// Admit says whether a write may be made. It never sleeps. An error stops the write.
	Admit(context.Context, Write) (Admission, error)

	// Settle is called once for each write that Admit has passed, when it is known how that
	// has ended. The context has no deadline.
	Settle(context.Context, Write, Settlement)
}

// StoppedError means that a step has stopped a write, so that nothing was written.
type StoppedError struct {
	Outcome Outcome // never Pass or Changed
	Reason  string
	Retry   time.Duration // see Admission
}

func (e *StoppedError) Error() string { return "stopped: " + e.Reason }

// IsWait reports whether an error means that a write has to wait.
func IsWait(err error) bool {
	stopped := (*StoppedError)(nil)
	return errors.As(err, &stopped) && stopped.Outcome == Wait
}

// RetryAfter returns when a write that has to wait is decided about again: the longer one of a delay
// and of what the step has said.
func RetryAfter(err error, least time.Duration) time.Duration {
	stopped := (*StoppedError)(nil)
	if !errors.As(err, &stopped) {
		return least
	}
	return max(least, stopped.Retry)
}

// Writer makes writes. Without steps, it makes none. Its methods may be called concurrently.
type Writer struct {
	Steps  []Step // in their order
	DryRun bool   // no step is asked, and nothing is written
}

// Do makes a write if each step admits it. Then the steps are settled in reverse order,
// whether the write was made, has failed, or was stopped by a later step. The error is a
// *StoppedError if a step has stopped it.
func (w Writer) Do(ctx context.Context, write Write) (act.Result, error) {
	switch {
	case !write.Effect.known():
		return act.Failed, fmt.Errorf("write to %s: unknown effect %q", name(write.Target), write.Effect)
	case w.DryRun:
		return act.DryRun, nil
	case len(w.Steps) == 0:
		return act.Failed, fmt.Errorf("write to %s: no step admits it", name(write.Target))
	}
	var (
		admitted []Step
		end      Settlement
	)
	defer func() { // also if the call panics
		for _, step := range slices.Backward(admitted) {
			step.Settle(context.WithoutCancel(ctx), write, end)
		}
	}()
	for _, step := range w.Steps {
		admission, err := step.Admit(ctx, write)
		switch {
		case err != nil:
			return act.Failed, fmt.Errorf("admit write to %s: %w", name(write.Target), err)
		case admission.Outcome == Pass:
			admitted = append(admitted, step)
		case admission.Outcome == Changed:
			return act.Changed, nil
		default:
			return act.Failed, stopped(step, write, admission)
		}
	}
	end.Sent = true
	end.Result, end.Err = write.Do(ctx)
	return end.Result, end.Err
}

// stopped returns the error for a write that a step has not admitted.
func stopped(step Step, write Write, a Admission) error {
	if a.Reason == "" {
		a.Reason = fmt.Sprintf("%T gave no reason", step)
	}
	return fmt.Errorf("write to %s: %w", name(write.Target), &StoppedError{Outcome: a.Outcome, Reason: a.Reason, Retry: a.Retry})
}

// name returns the name of an object for errors.
func name(o graph.Object) string {
	if o.Namespace == "" {
		return o.Kind.Kind + " " + o.Name
	}
	return o.Kind.Kind + " " + o.Namespace + "/" + o.Name
}
