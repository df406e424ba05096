// Package backtest evaluates policies against recorded decisions: which of them would have been
// different.
//
// It decides nothing itself: the operator's own evaluator and planner do, with a reader that answers
// from the record. What the record does not contain is never guessed: then the decision is
// NotEvaluable. Whether a service account may read an object is not recorded, so it is assumed.
// It reads no cluster and writes nothing.
package backtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

// Outcome is what became of a recorded decision.
type Outcome string

// The outcomes. The zero Outcome is that of an entry that is not about policies.
const (
	Unchanged    Outcome = "Unchanged"
	Different    Outcome = "Different"
	NotEvaluable Outcome = "NotEvaluable" // the record does not contain what the policies read
)

// Decision is a decision, as far as decisions are compared.
type Decision struct {
	Action      string        `json:"action"`                // Delete, or the reason why the object stays, or the propagation policy of its dependents
	Propagation string        `json:"propagation,omitempty"` // of Delete
	Reason      decide.Reason `json:"reason,omitempty"`
	Policy      string        `json:"policy,omitempty"` // that decided; empty: the default
	Message     string        `json:"message,omitempty"`
}

// String returns the decision in a few words.
func (d Decision) String() string {
	text := d.Action
	if d.Propagation != "" {
		text += " (" + d.Propagation + ")"
	}
	if d.Policy != "" {
		text += " by " + d.Policy
	}
	if d.Message != "" {
		text += ": " + d.Message
	}
	return text
}

// Result is the result for one entry.
type Result struct {
	Outcome  Outcome
	Recorded Decision
	Now      Decision // of Unchanged and Different
	Missing  string   // of NotEvaluable: what the record does not contain
}

// Backtest evaluates policies against entries. Create it with New. It must not be used concurrently.
type Backtest struct {
	set   *policies.Set
	types func() *catalog.Catalog
}

// New returns a Backtest of policies. Policies in Monitor mode are evaluated as if they enforced.
// Types are those of the entries; decisions about other types are NotEvaluable. The error says which policies can't be evaluated at all.
func New(all []*policies.Policy, types *catalog.Catalog) (*Backtest, error) {
	b := &Backtest{types: func() *catalog.Catalog { return types }}
	var errs []error
	var copies []*policies.Policy
	for _, p := range all {
		if p.Evaluator == nil {
			errs = append(errs, fmt.Errorf("%s is not ready: %s", p, p.NotReadyReason))
		}
		enforced := *p
		enforced.Enforce = true
		copies = append(copies, &enforced)
	}
	b.set = policies.NewSet(copies)
	return b, errors.Join(errs...)
}

// collectReasons are the reasons of decisions about objects without owners. The value is set for
// those that delete them.
var collectReasons = map[decide.Reason]bool{
	decide.OwnersAbsent: true, decide.OwnersWaiting: true, decide.LeftToCollector: true, decide.DeletedByCollector: true,
	decide.KeptByPolicy: false, decide.PolicyWaiting: false, decide.DelayedByPolicy: false, decide.PolicyFault: false,
	decide.PolicyRateLimited: false, decide.NoDecision: false,
}

// hookOf returns the hook that an entry's policies were, or would have been, evaluated for.
func hookOf(e record.Entry) hostabi.Hook {
	for _, a := range e.Evaluations {
		if a.Hook == string(hostabi.HookPropagate) {
			return hostabi.HookPropagate
		}
		if a.Hook == string(hostabi.HookFinalize) {
			return ""
		}
	}
	if _, is := collectReasons[e.Reason]; is && len(e.Owners) != 0 {
		return hostabi.HookCollect
	}
	return ""
}

// Evaluate evaluates the policies for one entry. An error means that ctx ended, or that the evaluation
// itself failed.
func (b *Backtest) Evaluate(ctx context.Context, e record.Entry) (Result, error) {
	hook := hookOf(e)
	if hook == "" {
		return Result{}, nil
	}
	result := Result{Recorded: recordedDecision(e, hook)}
	r, known := b.types().Preferred(schema.FromAPIVersionAndKind(e.Object.APIVersion, e.Object.Kind).GroupKind())
	if !known {
		result.Outcome, result.Missing = NotEvaluable, "the resource of its type"
		return result, nil
	}
	if !b.set.Has(hook, r.Version.GroupResource(), e.Object.Namespace) && len(e.Evaluations) == 0 {
		result.Outcome, result.Now = Unchanged, result.Recorded // no policy was evaluated then, and none would be now
		return result, nil
	}
	c := newRecorded(e, hook)
	evaluator := &evaluate.Evaluator{
		Policies: func() *policies.Set { return c.guard(b.set) }, Default: builtin.Policy{}, Catalog: b.types, Reader: c, Intents: c,
		Now: func() time.Time { return c.request.Time }, DependentsByKind: c.dependentsByKind,
	}
	facts := c.facts()
	evaluated, err := evaluator.Evaluate(ctx, evaluate.Input{Hook: hook, Facts: facts, RequestedPropagation: c.request.RequestedPropagation, Attempt: c.request.Attempt})
	if ctx.Err() != nil {
		return result, ctx.Err()
	}
	if err != nil && c.missing == "" {
		return result, fmt.Errorf("evaluate %s: %w", e.Object, err)
	}
	if c.missing == "" {
		result.Now = c.decision(facts, evaluated)
		result.Outcome = compare(result.Recorded, result.Now)
		if result.Outcome == NotEvaluable {
			c.missing = "the propagation policy that the default would have used"
		}
	}
	if c.missing != "" {
		result.Outcome, result.Missing, result.Now = NotEvaluable, c.missing, Decision{}
	}
	return result, nil
}

// compare compares two decisions. How the built-in collector deletes is not recorded.
func compare(then, now Decision) Outcome {
	const deletes = string(record.Delete)
	switch {
	case then.Action != now.Action:
		return Different
	case now.Action != deletes || then.Propagation == "" || then.Propagation == now.Propagation:
		return Unchanged
	case now.Propagation == "":
		return NotEvaluable
	default:
		return Different
	}
}

// recordedDecision returns the decision of an entry.
func recordedDecision(e record.Entry, hook hostabi.Hook) Decision {
	d := Decision{Action: string(e.Reason), Reason: e.Reason, Policy: e.Policy}
	for _, a := range e.Evaluations {
		if a.Policy == e.Policy {
			d.Message = strings.TrimSpace(a.Reason + a.Fault)
		}
	}
	switch {
	case hook == hostabi.HookPropagate && e.Reason != decide.PolicyFault && e.Reason != decide.PolicyWaiting:
		d.Action = e.Decided()
	case collectReasons[e.Reason]:
		d.Action = string(record.Delete)
		if e.Action == record.Delete {
			d.Propagation = e.Detail
		}
	}
	if len(e.Evaluations) == 0 {
		d.Policy = "" // the name of the default
	}
	return d
}

// decision returns the decision that an evaluation leads to.
func (c *recorded) decision(facts decide.Facts, evaluated evaluate.Result) Decision {
	d := Decision{Message: evaluated.Verdict.Reason}
	if evaluated.DecidedBy != nil {
		d.Policy = evaluated.DecidedBy.String()
	}
	if evaluated.Fault != nil {
		d.Message = evaluated.Fault.Error()
	}
	if c.hook == hostabi.HookPropagate && evaluated.Fault == nil && evaluated.Verdict.Decision != hostabi.DecisionWait {
		d.Action = string(evaluated.Verdict.Decision)
		return d
	}
	if since := c.request.OwnersAbsentSince; since != nil {
		evaluated.State.OwnersAbsentSince = *since
	}
	plan := decide.Choose(decide.Classify(facts), decide.PolicyResult{
		Verdict: evaluated.Verdict, Fault: evaluated.Fault != nil, State: evaluated.State, Now: c.request.Time,
	})
	d.Action, d.Reason = string(plan.Reason), plan.Reason
	if collectReasons[plan.Reason] {
		_, d.Propagation = record.ActionOf(plan.Action)
		d.Action = string(record.Delete)
		if !c.defaultKnown && c.usesDefault {
			d.Propagation = "" // it depends on what is not recorded
		}
	}
	return d
}
