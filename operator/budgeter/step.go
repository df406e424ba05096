package budgeter

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/budget"
	"github.com/gleaner-dev/gleaner/operator/budgetstore"
	"github.com/gleaner-dev/gleaner/operator/bulkread"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/writer"
	"github.com/gleaner-dev/gleaner/policies"
)

const (
	// waitRetry is when a deletion that waits for a budget is decided again if its turn has not come before.
	waitRetry = 5 * time.Minute

	// invalidRetry is the same for a budget that is not in force.
	invalidRetry = 10 * time.Second
)

// Steps returns the steps that deletions pass: the first reserves them and belongs before all steps with effects; the second
// stops those whose reservation has expired meanwhile, and belongs immediately before the gate.
func (b *Budgeter) Steps() (reserves, confirms writer.Step) {
	t := &taken{Budgeter: b, of: map[types.UID][]reservation{}}
	return reserve{t}, confirm{t}
}

// reservation is a token of one budget.
type reservation struct {
	limiter *limiter
	token   budget.Token
}

// taken has the tokens of the writes between the two steps.
type taken struct {
	*Budgeter

	mu sync.Mutex // covers of
	of map[types.UID][]reservation
}

func (t *taken) get(uid types.UID) []reservation {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[uid]
}

// put reports whether there was no other write of the object.
func (t *taken) put(uid types.UID, all []reservation) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, other := t.of[uid]; other {
		return false
	}
	t.of[uid] = all
	return true
}

func (t *taken) remove(uid types.UID) []reservation {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.of[uid]
	delete(t.of, uid)
	return all
}

type reserve struct{ *taken }

var pass = writer.Admission{Outcome: writer.Pass}

// Admit implements writer.Step.
func (s reserve) Admit(ctx context.Context, w writer.Write) (writer.Admission, error) {
	if w.Effect != writer.Deletes || w.Target.Terminating { // a second DELETE changes what happens to dependents
		return pass, nil
	}
	v, err := s.current()
	if err != nil {
		return writer.Admission{Outcome: writer.Wait, Reason: err.Error()}, nil //nolint:nilerr // the write has not failed: it waits
	}
	selecting, err := s.selecting(ctx, v, w.Target)
	switch {
	case err != nil:
		return writer.Admission{Outcome: writer.Wait, Reason: "which deletion budgets limit this is not known: " + err.Error()}, nil //nolint:nilerr // the write has not failed: it waits
	case len(selecting) == 0:
		return pass, nil
	}
	return s.take(selecting, w.Target), nil
}

// take takes a token of each budget, or none.
func (s reserve) take(from []*limiter, o graph.Object) writer.Admission {
	var all []reservation
	for _, l := range from {
		token, waits := l.take(graph.IDOf(o.UID))
		if waits != "" {
			giveBack(all)
			retry := invalidRetry
			if l.isInForce() {
				retry = waitRetry
			}
			return writer.Admission{Outcome: writer.Wait, Reason: waits, Retry: retry}
		}
		all = append(all, reservation{l, token})
	}
	if !s.put(o.UID, all) {
		giveBack(all)
		return writer.Admission{Outcome: writer.Wait, Reason: "it is being deleted already"}
	}
	return pass
}

func giveBack(all []reservation) {
	for _, r := range all {
		r.limiter.settle(r.token, budget.Unused)
	}
}

// Settle implements writer.Step.
func (s reserve) Settle(_ context.Context, w writer.Write, end writer.Settlement) {
	if w.Effect != writer.Deletes || w.Target.Terminating {
		return
	}
	outcome := outcomeOf(end)
	for _, r := range s.remove(w.Target.UID) {
		r.limiter.settle(r.token, outcome)
	}
}

// outcomeOf returns what is known of a deletion.
func outcomeOf(end writer.Settlement) budget.Outcome {
	switch {
	case !end.Sent:
		return budget.Unused
	case end.Err != nil:
		if apierrors.IsForbidden(end.Err) || apierrors.IsConflict(end.Err) || apierrors.IsNotFound(end.Err) || apierrors.IsInvalid(end.Err) {
			return budget.Unused // it was refused
		}
		return budget.Uncertain
	case end.Result == act.AlreadyGone, end.Result == act.Changed:
		return budget.Unused
	default:
		return budget.Deleted
	}
}

type confirm struct{ *taken }

// Admit implements writer.Step.
func (s confirm) Admit(_ context.Context, w writer.Write) (writer.Admission, error) {
	if w.Effect != writer.Deletes || w.Target.Terminating {
		return pass, nil
	}
	for _, r := range s.get(w.Target.UID) {
		if r.limiter.expired(r.token) {
			return writer.Admission{Outcome: writer.Wait, Reason: "its reservation has expired"}, nil
		}
	}
	return pass, nil
}

// Settle implements writer.Step.
func (confirm) Settle(context.Context, writer.Write, writer.Settlement) {}

// Limits returns a budget that selects an object; "" if none does.
func (b *Budgeter) Limits(ctx context.Context, o graph.Object) (string, error) {
	v, err := b.current()
	if err != nil {
		return "", err
	}
	all, err := b.selecting(ctx, v, o)
	if err != nil || len(all) == 0 {
		return "", err
	}
	return all[0].name(), nil
}

// selecting returns the budgets that select an object, in the order in which tokens are taken.
func (b *Budgeter) selecting(ctx context.Context, v *view, o graph.Object) ([]*limiter, error) {
	if len(v.limiters) == 0 {
		return nil, nil
	}
	resource, served := b.options.Catalog().Preferred(o.Kind.GroupKind())
	if !served {
		return nil, nil // nothing of it can be deleted
	}
	all := slices.Collect(v.set.Candidates(budgetstore.Hook, resource.Version.GroupResource(), o.Namespace))
	all, err := b.matching(ctx, all, resource, o)
	if err != nil {
		return nil, err
	}
	var limiters []*limiter
	for _, p := range all {
		limiters = append(limiters, v.of[p])
	}
	return sorted(limiters), nil
}

// matching returns the policies whose selectors match an object. Its labels and those of its namespace are read if they
// are needed.
func (b *Budgeter) matching(ctx context.Context, all []*policies.Policy, resource catalog.Resource, o graph.Object) ([]*policies.Policy, error) {
	byNamespace := func(p *policies.Policy) bool { return p.NamespaceSelector != nil }
	if slices.ContainsFunc(all, byNamespace) {
		namespace, err := b.options.Reader.Namespace(ctx, o.Namespace)
		if err != nil {
			return nil, fmt.Errorf("read its namespace: %w", err)
		}
		all = slices.DeleteFunc(all, func(p *policies.Policy) bool {
			return byNamespace(p) && !p.NamespaceSelector.Matches(namespace.Labels)
		})
	}
	byLabels := func(p *policies.Policy) bool { return p.ObjectSelector != nil }
	if !slices.ContainsFunc(all, byLabels) {
		return all, nil
	}
	set, err := b.labels(ctx, resource, o)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p *policies.Policy) bool { return byLabels(p) && !p.ObjectSelector.Matches(set) }), nil
}

// labels returns the labels of an object. They are those of its current state, which a deletion may find changed: it is
// then decided again.
func (b *Budgeter) labels(ctx context.Context, resource catalog.Resource, o graph.Object) (labels.Set, error) {
	if b.options.Bulk != nil {
		wanted := bulkread.Wanted{Resource: resource, Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}
		if listed, ok := b.options.Bulk.Get(wanted); ok {
			return listed.GetLabels(), nil
		}
	}
	read, err := b.options.Reader.Get(ctx, policies.ServiceAccount{}, resource.Version, o.Namespace, o.Name)
	switch {
	case err != nil && catalog.ConfirmsNotFound(err, resource.Version.GroupResource(), o.Name):
		return nil, nil // nothing is deleted
	case err != nil:
		return nil, fmt.Errorf("read its labels: %w", err)
	}
	return read.GetLabels(), nil
}
