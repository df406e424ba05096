package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

const (
	inTurn = 200 // pairs that are deleted one after the other

	// askedToWait is what a policy says that waits, which is not counted as delay.
	askedToWait = 200 * time.Millisecond
)

// affair is a way in which owners are deleted, and who has a say in what becomes of
// their dependents.
type affair struct {
	name   string
	beside string // the affair of kube-controller-manager alone in which the same becomes of them

	policies []*v1alpha1.ClusterGCPolicy
	module   *v1alpha1.ClusterPolicyModule
	asks     metav1.DeletionPropagation // by the client; "": nothing
	waits    time.Duration              // that a policy asked for

	stays  bool // the dependents do, free of their owner
	held   bool // the owners have holds
	vetoed bool // the webhook is asked about the dependents
}

const (
	aloneBackground = "alone, background"
	aloneForeground = "alone, foreground"
	aloneOrphan     = "alone, orphan"
)

// alone are the affairs without Gleaner.
func alone() []affair {
	return []affair{
		{name: aloneBackground, beside: aloneBackground},
		{name: aloneForeground, beside: aloneForeground, asks: metav1.DeletePropagationForeground},
		{name: aloneOrphan, beside: aloneOrphan, asks: metav1.DeletePropagationOrphan, stays: true},
	}
}

// governing is a policy that gives fixed answers, about one resource.
func governing(name, resource, propagate, collect string) *v1alpha1.ClusterGCPolicy {
	p := policyOf(name, v1alpha1.NeedReference, nil)
	p.Spec.Resources[0].Resources = []string{resource}
	p.Spec.Fixed = &v1alpha1.FixedVerdicts{}
	if propagate != "" {
		p.Spec.Fixed.Propagate = &v1alpha1.FixedVerdict{Decision: propagate}
	}
	if collect != "" {
		p.Spec.Fixed.Collect = &v1alpha1.FixedVerdict{Decision: collect}
	}
	return p
}

// waitingOnce waits the first time that it is asked about an object.
const waitingOnce = `package gleaner
collect := {"decision": "Wait", "after": "%s"} if input.attempt == 1
else := {"decision": "Delete"}
`

// besideIt are the affairs with Gleaner. Owners are Secrets, and dependents ConfigMaps.
func besideIt() []affair {
	elsewhere := []*v1alpha1.ClusterGCPolicy{governing("elsewhere", "persistentvolumeclaims", "Orphan", "Orphan")}
	unselected := []*v1alpha1.ClusterGCPolicy{governing("unselected-owners", "secrets", "Orphan", ""), governing("unselected-dependents", "configmaps", "", "Orphan")}
	for _, p := range unselected {
		p.Spec.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"bench.example.com/governed": "yes"}}
	}
	module := regoModule("bench-waiting", fmt.Sprintf(waitingOnce, askedToWait))
	waiting := policyOf("collect", v1alpha1.NeedReference, module)
	propagate := func(decision string) []*v1alpha1.ClusterGCPolicy {
		return []*v1alpha1.ClusterGCPolicy{governing("propagate", "secrets", decision, "")}
	}
	collect := func(decision string) []*v1alpha1.ClusterGCPolicy {
		return []*v1alpha1.ClusterGCPolicy{governing("collect", "configmaps", "", decision)}
	}
	affairs := []affair{
		{name: "other resources governed, background", beside: aloneBackground, policies: elsewhere},
		{name: "other resources governed, foreground", beside: aloneForeground, policies: elsewhere, asks: metav1.DeletePropagationForeground},
		{name: "other resources governed, orphan", beside: aloneOrphan, policies: elsewhere, asks: metav1.DeletePropagationOrphan, stays: true},
		{name: "other labels governed, background", beside: aloneBackground, policies: unselected},
		{name: "propagate: Background", beside: aloneBackground, policies: propagate("Background"), held: true},
		{name: "propagate: Foreground", beside: aloneForeground, policies: propagate("Foreground"), held: true},
		{name: "propagate: Orphan", beside: aloneOrphan, policies: propagate("Orphan"), held: true, stays: true},
		{name: "collect: Delete", beside: aloneBackground, policies: collect("Delete"), vetoed: true},
		{name: "collect: Orphan", beside: aloneBackground, policies: collect("Orphan"), vetoed: true, stays: true},
	}
	return append(affairs, affair{
		name: fmt.Sprintf("collect: Wait for %s, then Delete", askedToWait), beside: aloneBackground, vetoed: true, waits: askedToWait,
		policies: []*v1alpha1.ClusterGCPolicy{waiting}, module: module,
	})
}

// beside measures what it costs to have Gleaner beside the collector of
// kube-controller-manager: for what policies govern, and for what they don't.
func (f *field) beside(ctx context.Context, r *report, b budget) error {
	c, err := f.define(ctx)
	if err != nil {
		return err
	}
	figures := map[string][]besides{}
	take := func(gleaner *ours, affairs []affair) error {
		for _, a := range affairs {
			d, err := f.affair(ctx, c, gleaner, a)
			if err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
			progress("%s: p50 %.1f ms, %.1f calls; at once: %.0f owners/s", a.name, percentile(d.delays, 50), d.inTurn.calls, d.perSecond)
			figures[a.name] = append(figures[a.name], d)
		}
		return nil
	}
	both := newCompanion(f.cluster, f.settings)
	for range f.rounds {
		if err := f.with(ctx, f.contenders[0], b, func() error { return take(nil, alone()) }); err != nil {
			return err
		}
		if err := f.with(ctx, both, b, func() error { return take(&both.gleaner, besideIt()) }); err != nil {
			return err
		}
	}
	affairs := slices.Concat(alone(), besideIt())
	r.tables = append(r.tables, costsBeside(affairs, figures), f.atOnceBeside(affairs, figures))
	return nil
}

// affair measures one affair.
func (f *field) affair(ctx context.Context, c client.Client, gleaner *ours, a affair) (d besides, err error) {
	if err := govern(ctx, c, a); err != nil {
		return d, err
	}
	namespace, err := f.namespace(ctx)
	if err != nil {
		return d, err
	}
	if err := f.inEffect(ctx, c, gleaner, namespace, a); err != nil {
		return d, err
	}
	if err := f.oneByOne(ctx, gleaner, namespace, a, &d); err != nil {
		return d, fmt.Errorf("one by one: %w", err)
	}
	if err := f.allAtOnce(ctx, gleaner, namespace, a, &d); err != nil {
		return d, fmt.Errorf("all at once: %w", err)
	}
	return d, ungovern(ctx, c, a)
}

// govern applies an affair's policies, and waits until they are in force.
func govern(ctx context.Context, c client.Client, a affair) error {
	if a.module != nil {
		if err := c.Create(ctx, a.module.DeepCopy()); err != nil {
			return err
		}
	}
	for _, p := range a.policies {
		if err := c.Create(ctx, p.DeepCopy()); err != nil {
			return err
		}
	}
	for _, p := range a.policies {
		if err := until(ctx, func() error { return enforcing(ctx, c, p.Name) }); err != nil {
			return err
		}
	}
	return nil
}

// ungovern takes an affair's policies away, and waits until all that they had the API
// server do is undone.
func ungovern(ctx context.Context, c client.Client, a affair) error {
	for _, p := range a.policies {
		if err := c.Delete(ctx, p.DeepCopy()); err != nil {
			return err
		}
	}
	if a.module != nil {
		if err := c.Delete(ctx, a.module.DeepCopy()); err != nil {
			return err
		}
	}
	return until(ctx, func() error {
		var left []error
		for _, p := range a.policies {
			if err := c.Get(ctx, client.ObjectKeyFromObject(p), p.DeepCopy()); !apierrors.IsNotFound(err) {
				left = append(left, fmt.Errorf("policy %s is still there: %w", p.Name, err))
			}
		}
		if err := c.Get(ctx, client.ObjectKey{Name: "gleaner-veto"}, vetoes()); !apierrors.IsNotFound(err) {
			left = append(left, fmt.Errorf("the webhook's configuration is still there: %w", err))
		}
		return errors.Join(left...)
	})
}
