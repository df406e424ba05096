// Package evaluate evaluates the policies that govern an object: it determines these
// policies and their order, creates their requests, and selects the verdict that counts.
//
// It changes nothing. Objects for a GCPolicy are read as its service account; what that
// account may not read is withheld.
//
// The most important rule: any error keeps the object, unless the policy's onFault says
// that the next policy is evaluated.
package evaluate

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/bulkread"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/selectors"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/policies"
)

// Evaluator evaluates policies. All fields are required, unless they say otherwise. Its methods may be
// called concurrently.
type Evaluator struct {
	Policies func() *policies.Set // nil: not known yet
	Default  policies.Evaluator   // evaluated if no policy returns a verdict
	Catalog  func() *catalog.Catalog
	Reader   modulecall.Reader
	Bulk     *bulkread.Reader // may have objects, which then are not read one by one; optional
	Intents  modulecall.Intents

	Namespace string // Gleaner's own; objects in it have no holds, which could block its deletion

	Now func() time.Time

	// StateKeys verify state annotations. An error means that there may be more keys than
	// those returned: state that none of them has signed may be valid, so its object is
	// kept.
	StateKeys func() (statekey.Keys, error)

	// OnUnverified is called with that error when an object is kept because of it. May be nil.
	OnUnverified func(error)

	// Companion is set in companion mode: the built-in garbage collector carries out
	// decisions about dependents, and removes its finalizer afterwards. So a missing
	// finalizer says nothing about the client's request.
	Companion bool

	// Selectors returns the index of the selectors of Policies. Nil, also as its result, means that
	// objects are read to evaluate selectors.
	Selectors func() *selectors.Index

	// Metadata returns the metadata of an object in the state of the facts, if a watch or the
	// response to a write has shown it lately. The state annotation of an object with a hold is
	// then not read. Nil means that it is always read.
	Metadata func(graph.Object) (*metav1.PartialObjectMetadata, bool)

	// EquivalentKinds returns the pairs of types that serve the same objects. Nil means none.
	EquivalentKinds func() []graph.EquivalentKinds

	// DependentsByKind counts an object's dependents, for requests.
	DependentsByKind func(graph.ID) []graph.KindCount

	memoryStates memoryStates
}

// Input is the input of an evaluation.
type Input struct {
	Hook                 hostabi.Hook
	Facts                decide.Facts
	RequestedPropagation hostabi.RequestedPropagation
	Attempt              int // from 1

	UserInfo  *hostabi.UserInfo  // who requests the deletion; with HookProtect only
	Retention *hostabi.Retention // which limit removes the object, or an image from it; with HookRetain only
	Image     *hostabi.Image     // which image is removed from a Node; with HookRetain only

	// Object is the object as read with Gleaner's own permissions, if the caller has
	// it; otherwise nil.
	Object *unstructured.Unstructured
}

// Result is the result of an evaluation.
type Result struct {
	Verdict   hostabi.Verdict  // the zero Verdict keeps the object
	DecidedBy *policies.Policy // the policy that returned the verdict; nil for the default

	// Fault is the error for which the object is kept, if any.
	Fault error

	// MatchesDefault is set if the verdict to delete is identical to the default's.
	MatchesDefault bool

	// Evaluations are all evaluations, in order, including those without effect.
	Evaluations []Evaluation

	// State is the state of the object, or its initial state. Remembered is set if it
	// comes from the state annotation, and Stray if that annotation is invalid.
	State    objectstate.State
	Stored   bool
	Obsolete bool

	// EarlierPolicy is the policy that decided earlier, if that decision still applies.
	EarlierPolicy string

	// Changed is the object from a live read, if it differs from the facts. Then the
	// rest of the Result is invalid.
	Changed *graph.Object
}

// PolicyName returns the name of the policy that decided; defaultName if none did, and ""
// if there is no decision.
func (r Result) PolicyName(defaultName string) string {
	switch {
	case r.DecidedBy != nil:
		return r.DecidedBy.String()
	case r.EarlierPolicy != "":
		return r.EarlierPolicy
	case r.Verdict.Decision != "":
		return defaultName
	default:
		return ""
	}
}

// Evaluation is the evaluation of one policy.
type Evaluation struct {
	Policy   *policies.Policy
	Hook     hostabi.Hook
	Verdict  hostabi.Verdict
	Fault    error // then there is no verdict
	Fuel     int64
	Duration time.Duration
	Rounds   int

	// Exchanges are the request and verdict of each round, if the policy has a module.
	Exchanges []policies.Exchange
}

// Evaluate evaluates the policies for an object. An error means that a read failed and the
// result is unknown.
func (c *Evaluator) Evaluate(ctx context.Context, q Input) (Result, error) {
	o := q.Facts.Object
	set := c.Policies()
	if set == nil {
		return Result{Fault: errPoliciesUnknown}, nil
	}
	r, known := c.Catalog().Preferred(o.Kind.GroupKind())
	if !known {
		return Result{Fault: errTypeNotServed}, nil
	}
	resource := r.Version.GroupResource()
	var result Result
	if result.setFault(c.checkEquivalent(ctx, set, q.Hook, o, resource)) {
		return result, nil
	}
	remembers := q.Hook != hostabi.HookProtect && q.Hook != hostabi.HookRetain // neither has a state
	if !set.Has(q.Hook, resource, o.Namespace) && (!o.HasState || !remembers) {
		return c.evaluateDefault(ctx, q, Result{})
	}
	s := &session{Evaluator: c, input: q, resource: resource}
	if q.Hook == hostabi.HookCollect {
		s.selected, s.bulk = c.selected(o, resource), c.Bulk
	}
	if remembers {
		if err := s.readState(ctx, &result); err != nil && result.Changed == nil && result.Fault == nil {
			return result, err
		}
	}
	if result.Changed != nil || result.Fault != nil {
		return result, nil //nolint:nilerr // the result contains the error
	}
	if q.Hook == hostabi.HookPropagate {
		if result.setFault(s.readNamespace(ctx)) || result.applyEarlierDecision(q.RequestedPropagation, c.Companion) {
			return result, nil
		}
	}
	if s.evaluateAll(ctx, set, &result) {
		return result, nil
	}
	if result.DecidedBy != nil {
		return c.completeDelete(ctx, q, result)
	}
	return c.evaluateDefault(ctx, q, result)
}

// evaluateAll evaluates the policies in order until one does not abstain. It reports whether
// the result is final: a fault keeps the object, or the object has changed.
func (s *session) evaluateAll(ctx context.Context, set *policies.Set, result *Result) (final bool) {
	q := s.input
	for p := range set.Candidates(q.Hook, s.resource, q.Facts.Object.Namespace) {
		if s.exempt(p) || s.selected.Excludes(p) {
			continue
		}
		evaluated, governs := s.evaluateInTime(ctx, p, result.State)
		if s.changed != nil {
			*result = Result{Changed: s.changed}
			return true
		}
		if !governs {
			continue
		}
		evaluated.Hook = s.input.Hook
		result.Evaluations = append(result.Evaluations, evaluated)
		switch {
		case !p.Enforce, evaluated.Fault == nil && evaluated.Verdict.Decision == hostabi.DecisionAbstain:
		case evaluated.Fault == nil:
			result.Verdict, result.DecidedBy = evaluated.Verdict, p
			return s.inheritGracePeriod(ctx, result)
		case p.OnFault != policies.OnFaultDefault, errors.As(evaluated.Fault, new(hostError)):
			result.DecidedBy, result.Fault = p, evaluated.Fault
			return true
		}
	}
	return false
}

// setFault sets the fault, and reports whether there is one.
func (o *Result) setFault(err error) bool {
	o.Fault = err
	return err != nil
}

// applyEarlierDecision applies the earlier decision about the dependents, and reports whether there is
// one. It no longer applies if a client has since requested a propagation policy that is
// neither the one requested then nor the one decided.
func (o *Result) applyEarlierDecision(requested hostabi.RequestedPropagation, companion bool) bool {
	p := o.State.Propagation
	if !o.Stored || p == nil {
		return false
	}
	now := string(requested)
	if requested == hostabi.RequestedUnspecified {
		now = string(hostabi.DecisionBackground)
	}
	carriedOut := companion && requested == hostabi.RequestedUnspecified
	if string(requested) != p.Requested && now != p.Decision && !carriedOut {
		o.State.Propagation = nil
		return false
	}
	o.Verdict = hostabi.Verdict{
		Decision: hostabi.Decision(p.Decision), Dependents: p.Dependents, Order: p.Order, GracePeriodSeconds: p.GracePeriodSeconds, Reason: p.Reason,
	}
	o.EarlierPolicy = p.Policy
	return true
}

// readNamespace reads the object's namespace.
func (s *session) readNamespace(ctx context.Context) (err error) {
	s.namespace, err = s.Reader.Namespace(ctx, s.input.Facts.Object.Namespace)
	return err
}

// exempt reports whether a policy cannot decide about the dependents of an object.
func (s *session) exempt(p *policies.Policy) bool {
	if s.input.Hook != hostabi.HookPropagate {
		return false
	}
	requested := s.input.RequestedPropagation
	namespace := s.input.Facts.Object.Namespace
	return namespace == metav1.NamespaceSystem || namespace != "" && namespace == s.Namespace ||
		s.namespace.Terminating && p.Namespace != "" ||
		requested != hostabi.RequestedUnspecified && requested != "" && !p.OverrideExplicit
}

// NeedsHold reports whether an object needs a hold, because a policy must be evaluated when it
// is deleted. Known is false if this cannot be determined; then the hold should not
// change. An error means that a read failed and may succeed later. With a
// modulecall.WithheldError,
// the object needs a hold, since a policy may govern it.
func (c *Evaluator) NeedsHold(ctx context.Context, facts decide.Facts) (wanted, known bool, err error) {
	o, set := facts.Object, c.Policies()
	r, served := c.Catalog().Preferred(o.Kind.GroupKind())
	if set == nil || !served {
		return false, false, nil // a change of either triggers another call
	}
	s := &session{Evaluator: c, input: Input{Hook: hostabi.HookPropagate, Facts: facts}, resource: r.Version.GroupResource()}
	if !set.Has(hostabi.HookPropagate, s.resource, o.Namespace) {
		return false, true, nil
	}
	s.selected = c.selected(o, s.resource)
	if err := s.readNamespace(ctx); err != nil {
		return false, false, err
	}
	known = true
	for p := range set.Candidates(hostabi.HookPropagate, s.resource, o.Namespace) {
		if !p.Enforce || s.exempt(p) {
			continue
		}
		governs, err := s.governs(ctx, p)
		switch {
		case errors.As(err, new(*modulecall.WithheldError)) && !p.HooksUnknown:
			return true, true, err
		case err != nil:
			return false, false, err
		case governs && !p.HooksUnknown:
			return true, true, nil
		case governs:
			known = false
		}
	}
	return false, known, nil
}

// evaluateDefault evaluates the default, if no policy has returned a verdict.
func (c *Evaluator) evaluateDefault(ctx context.Context, q Input, result Result) (Result, error) {
	verdict, err := c.Default.Evaluate(ctx, c.request(q))
	if err != nil {
		return result, fmt.Errorf("evaluate %s: %w", c.Default.Name(), err)
	}
	result.Verdict, result.MatchesDefault = verdict, true
	return result, nil
}

// completeDelete takes the propagation policy from the default if the verdict to delete has none.
func (c *Evaluator) completeDelete(ctx context.Context, q Input, result Result) (Result, error) {
	if result.Verdict.Decision != hostabi.DecisionDelete {
		return result, nil
	}
	fallback, err := c.Default.Evaluate(ctx, c.request(q))
	if err != nil {
		return result, fmt.Errorf("evaluate %s: %w", c.Default.Name(), err)
	}
	if result.Verdict.Propagation == "" {
		result.Verdict.Propagation = fallback.Propagation
	}
	result.MatchesDefault = result.Verdict.Propagation == fallback.Propagation && result.Verdict.GracePeriodSeconds == nil
	return result, nil
}

// session is the evaluation for one object. The object is read when it is needed, once for
// each service account.
type session struct {
	*Evaluator
	input    Input
	resource schema.GroupResource

	object    *unstructured.Unstructured // read with Gleaner's own permissions
	changed   *graph.Object              // set if it differs from the facts
	namespace modulecall.Namespace       // of the object, after locate

	// What follows is set where what is decided is written with the object's resourceVersion as a
	// precondition: then it has no effect if the watch, or a list, is behind.

	selected selectors.Results // what the watch has shown
	bulk     *bulkread.Reader  // what was listed
}

// evaluateInTime evaluates a policy. A policy in Monitor mode has half of the remaining time, so
// that enough is left for the decision itself.
func (s *session) evaluateInTime(ctx context.Context, p *policies.Policy, m objectstate.State) (evaluated Evaluation, governs bool) {
	if deadline, limited := ctx.Deadline(); limited && !p.Enforce {
		half, cancel := context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
		ctx = half
	}
	return s.evaluatePolicy(ctx, p, m)
}

// evaluatePolicy evaluates one policy, if it governs the object.
func (s *session) evaluatePolicy(ctx context.Context, p *policies.Policy, m objectstate.State) (evaluated Evaluation, governs bool) {
	start := s.Now()
	evaluated.Policy = p
	governs, err := s.governs(ctx, p)
	switch {
	case err != nil:
		evaluated.Fault, governs = err, true
	case governs && p.Evaluator == nil:
		evaluated.Fault = fmt.Errorf("%w: %s", errNotReady, p.NotReadyReason)
	case governs:
		s.runRounds(ctx, p, m, &evaluated)
	}
	evaluated.Duration = s.Now().Sub(start)
	return evaluated, governs
}
