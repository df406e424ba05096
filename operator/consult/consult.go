// Package consult asks the policies that govern an object what is to become of
// it: which ones those are, in which order, what each of them is told, and whose
// word counts.
//
// It changes nothing. What it reads for a policy of a namespace it reads as that
// policy's service account, and leaves out what that may not read.
//
// The rule that everything here serves: whatever goes wrong keeps the object,
// unless the policy that it goes wrong with says that it is to be passed over.
package consult

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/operator/memo"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/policies"
)

// Consultant asks policies. All fields are required but Twins. Its methods may be called
// concurrently.
type Consultant struct {
	Policies func() *policies.Set // nil: not known yet
	Default  policies.Evaluator   // is asked where no policy has an answer
	Catalog  func() *catalog.Catalog
	Reader   Reader
	Intents  Intents

	Namespace string // Gleaner's own, in which nothing has a hold: it could keep the namespace from being deleted

	Now func() time.Time

	// Keys verify what is remembered on objects. An error says that there may be other
	// keys than those that are returned: what none of them has signed may still count,
	// and so its object is kept.
	Keys func() (statekey.Keys, error)

	// Unverified is called with that error when an object is kept for it; may be nil.
	Unverified func(error)

	// Beside says that another collector carries out what is decided of dependents: a
	// finalizer that is gone was taken off by it, and tells nothing of what anybody
	// wishes.
	Beside bool

	// Twins are the pairs of types that show the same objects; nil: there are none.
	Twins func() []graph.Twins

	// ByKind counts an object's dependents, for requests.
	ByKind func(graph.ID) []graph.KindCount

	unwritten unwritten
}

// Intents carries out what modules ask for.
type Intents interface {
	Do(ctx context.Context, on intents.Behalf, intent hostabi.Intent) hostabi.Result
}

// Question is what the policies are asked about.
type Question struct {
	Hook      hostabi.Hook
	Facts     decide.Facts
	Requested hostabi.Requested
	Attempt   int // from 1

	// Given is the object, as Gleaner itself may see it, if somebody has read it
	// already; nil if not.
	Given *unstructured.Unstructured
}

// Opinion is what came of asking.
type Opinion struct {
	Verdict hostabi.Verdict  // the zero Verdict keeps the object
	By      *policies.Policy // whose verdict it is; nil: the default's

	// Fault is why the object is kept, where a policy that is at fault holds it.
	Fault error

	// Usual says that the verdict to delete is also the default's, to the word.
	Usual bool

	// Asked are all that were asked, in order, with those that have no say.
	Asked []Asked

	// Memo is what was remembered of the object, or would be. Remembered tells
	// that it is on the object, and Stray that something is there which counts
	// for nothing.
	Memo       memo.Memo
	Remembered bool
	Stray      bool

	// Decided names the policy that decided before, if that decision stands.
	Decided string

	// Changed is the object as a read found it, if that is other than judged:
	// nothing else of the Opinion counts then.
	Changed *graph.Object
}

// Asked is one policy, and what it said.
type Asked struct {
	Policy  *policies.Policy
	Hook    hostabi.Hook
	Verdict hostabi.Verdict
	Fault   error // it has no verdict
	Fuel    int64
	Took    time.Duration
	Rounds  int

	// Exchanges are what its module was asked, round by round. Without a module
	// there are none.
	Exchanges []policies.Exchange
}

// Ask asks about an object. The error is one of reading, after which nothing is
// known.
func (c *Consultant) Ask(ctx context.Context, q Question) (Opinion, error) {
	o := q.Facts.Object
	set := c.Policies()
	if set == nil {
		return Opinion{Fault: errUnread}, nil
	}
	r, known := c.Catalog().Preferred(o.Kind.GroupKind())
	if !known {
		return Opinion{Fault: errUnknown}, nil
	}
	resource := r.Version.GroupResource()
	var opinion Opinion
	if opinion.fails(c.asTwin(ctx, set, q.Hook, o, resource)) {
		return opinion, nil
	}
	if !set.Has(q.Hook, resource, o.Namespace) && !o.Memo {
		return c.byDefault(ctx, q, Opinion{})
	}
	s := &subject{Consultant: c, question: q, resource: resource}
	if err := s.remember(ctx, &opinion); err != nil && opinion.Changed == nil && opinion.Fault == nil {
		return opinion, err
	}
	if opinion.Changed != nil || opinion.Fault != nil {
		return opinion, nil //nolint:nilerr // the opinion says what went wrong
	}
	if q.Hook == hostabi.HookPropagate {
		if opinion.fails(s.locate(ctx)) || opinion.stands(q.Requested, c.Beside) {
			return opinion, nil
		}
	}
	if s.askAll(ctx, set, &opinion) {
		return opinion, nil
	}
	if opinion.By != nil {
		return c.complete(ctx, q, opinion)
	}
	return c.byDefault(ctx, q, opinion)
}

// askAll asks the policies in their order until one of them has an answer. It
// reports whether there is nothing else to be said: one at fault holds the object,
// or the object has changed.
func (s *subject) askAll(ctx context.Context, set *policies.Set, opinion *Opinion) (final bool) {
	q := s.question
	for p := range set.For(q.Hook, s.resource, q.Facts.Object.Namespace) {
		if s.exempt(p) {
			continue
		}
		asked, governs := s.askInTime(ctx, p, opinion.Memo)
		if s.changed != nil {
			*opinion = Opinion{Changed: s.changed}
			return true
		}
		if !governs {
			continue
		}
		asked.Hook = s.question.Hook
		opinion.Asked = append(opinion.Asked, asked)
		switch {
		case !p.Enforce, asked.Fault == nil && asked.Verdict.Decision == hostabi.DecisionAbstain:
		case asked.Fault == nil:
			opinion.Verdict, opinion.By = asked.Verdict, p
			return false
		case p.OnFault != policies.OnFaultDefault, errors.As(asked.Fault, new(ours)):
			opinion.By, opinion.Fault = p, asked.Fault
			return true
		}
	}
	return false
}

// fails reports whether an error keeps the object.
func (o *Opinion) fails(err error) bool {
	o.Fault = err
	return err != nil
}

// stands reports whether it was decided before what becomes of the dependents, and
// takes that decision over. It doesn't stand once somebody has asked for something
// else than what was asked for then and what was decided.
func (o *Opinion) stands(requested hostabi.Requested, beside bool) bool {
	p := o.Memo.Propagation
	if !o.Remembered || p == nil {
		return false
	}
	now := string(requested)
	if requested == hostabi.RequestedUnspecified {
		now = string(hostabi.DecisionBackground)
	}
	carriedOut := beside && requested == hostabi.RequestedUnspecified
	if string(requested) != p.Requested && now != p.Decision && !carriedOut {
		o.Memo.Propagation = nil
		return false
	}
	o.Verdict = hostabi.Verdict{Decision: hostabi.Decision(p.Decision), Dependents: p.Dependents, Reason: p.Reason}
	o.Decided = p.Policy
	return true
}

// locate reads the object's namespace.
func (s *subject) locate(ctx context.Context) (err error) {
	s.namespace, err = s.Reader.Namespace(ctx, s.question.Facts.Object.Namespace)
	return err
}

// exempt reports whether a policy has no say on the dependents of an object.
func (s *subject) exempt(p *policies.Policy) bool {
	if s.question.Hook != hostabi.HookPropagate {
		return false
	}
	asked := s.question.Requested
	namespace := s.question.Facts.Object.Namespace
	return namespace == metav1.NamespaceSystem || namespace != "" && namespace == s.Namespace ||
		s.namespace.Terminating && p.Namespace != "" ||
		asked != hostabi.RequestedUnspecified && asked != "" && !p.Override
}

// Holds reports whether an object is to have a hold: whether a policy is to be asked
// once it is deleted. Known is false where nobody can tell, and then it stays as it
// is. An error is one of reading, after which it may be known later; with a WithheldError
// it is held, since it may be governed.
func (c *Consultant) Holds(ctx context.Context, facts decide.Facts) (wanted, known bool, err error) {
	o, set := facts.Object, c.Policies()
	r, served := c.Catalog().Preferred(o.Kind.GroupKind())
	if set == nil || !served {
		return false, false, nil // both will be told
	}
	s := &subject{Consultant: c, question: Question{Hook: hostabi.HookPropagate, Facts: facts}, resource: r.Version.GroupResource()}
	if !set.Has(hostabi.HookPropagate, s.resource, o.Namespace) {
		return false, true, nil
	}
	if err := s.locate(ctx); err != nil {
		return false, false, err
	}
	known = true
	for p := range set.For(hostabi.HookPropagate, s.resource, o.Namespace) {
		if !p.Enforce || s.exempt(p) {
			continue
		}
		governs, err := s.governs(ctx, p)
		switch {
		case errors.As(err, new(*WithheldError)) && !p.Unsure:
			return true, true, err
		case err != nil:
			return false, false, err
		case governs && !p.Unsure:
			return true, true, nil
		case governs:
			known = false
		}
	}
	return false, known, nil
}

// byDefault is what happens where no policy has an answer.
func (c *Consultant) byDefault(ctx context.Context, q Question, opinion Opinion) (Opinion, error) {
	verdict, err := c.Default.Evaluate(ctx, c.request(q))
	if err != nil {
		return opinion, fmt.Errorf("ask %s: %w", c.Default.Name(), err)
	}
	opinion.Verdict, opinion.Usual = verdict, true
	return opinion, nil
}

// complete has the default choose how to delete where a policy only says that.
func (c *Consultant) complete(ctx context.Context, q Question, opinion Opinion) (Opinion, error) {
	if opinion.Verdict.Decision != hostabi.DecisionDelete {
		return opinion, nil
	}
	usual, err := c.Default.Evaluate(ctx, c.request(q))
	if err != nil {
		return opinion, fmt.Errorf("ask %s: %w", c.Default.Name(), err)
	}
	if opinion.Verdict.Propagation == "" {
		opinion.Verdict.Propagation = usual.Propagation
	}
	opinion.Usual = opinion.Verdict.Propagation == usual.Propagation && opinion.Verdict.GracePeriodSeconds == nil
	return opinion, nil
}

// subject is the object that a question is about, read as often as whoever asks
// differs, and not before it is needed.
type subject struct {
	*Consultant
	question Question
	resource schema.GroupResource

	own       *unstructured.Unstructured // as Gleaner reads it
	changed   *graph.Object              // it is other than judged
	namespace Namespace                  // that it is in, once it is located
}

// askInTime asks a policy. One that changes nothing has half of the time that is left: what
// is decided without it is still to be decided, and carried out.
func (s *subject) askInTime(ctx context.Context, p *policies.Policy, m memo.Memo) (asked Asked, governs bool) {
	if deadline, limited := ctx.Deadline(); limited && !p.Enforce {
		half, cancel := context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
		ctx = half
	}
	return s.ask(ctx, p, m)
}

// ask asks one policy, if it governs the object.
func (s *subject) ask(ctx context.Context, p *policies.Policy, m memo.Memo) (asked Asked, governs bool) {
	began := s.Now()
	asked.Policy = p
	governs, err := s.governs(ctx, p)
	switch {
	case err != nil:
		asked.Fault, governs = err, true
	case governs && p.Asker == nil:
		asked.Fault = fmt.Errorf("%w: %s", errNotReady, p.NotReady)
	case governs:
		s.put(ctx, p, m, &asked)
	}
	asked.Took = s.Now().Sub(began)
	return asked, governs
}

// governs reports whether the policy's selectors and conditions let it govern the
// object. An error is a fault of the policy.
func (s *subject) governs(ctx context.Context, p *policies.Policy) (bool, error) {
	if p.Namespaces != nil && !p.Namespaces.Empty() {
		namespace, err := s.Reader.Namespace(ctx, s.question.Facts.Object.Namespace)
		if err != nil {
			return false, fmt.Errorf("whether its namespaceSelector selects the object is not known: %w", ours{err})
		}
		if !p.Namespaces.Matches(namespace.Labels) {
			return false, nil
		}
	}
	if !p.Looks() {
		return true, nil
	}
	object, err := s.read(ctx)
	if err != nil {
		return false, fmt.Errorf("whether it selects the object is not known: %w", ours{err})
	}
	if p.Objects != nil && !p.Objects.Matches(labelsOf(object)) {
		return false, nil
	}
	if p.Matches == nil {
		return true, nil
	}
	seen, withheld, err := s.seenBy(ctx, p)
	switch {
	case err != nil:
		return false, fmt.Errorf("whether its matchConditions hold is not known: %w", ours{err})
	case withheld != "":
		return false, ours{&WithheldError{Policy: p.String(), Why: withheld}}
	}
	return p.Matches(ctx, seen.Object)
}
