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
	"github.com/gleaner-dev/gleaner/hostabi"
)

const (
	sequentialPairs = 200 // pairs that are deleted sequentially

	// requestedWait is the wait that a policy requests; it does not count as delay.
	requestedWait = time.Duration(hostabi.MinWait)
)

// scenario is a scenario of deleting owners, with the policies that govern them or
// their dependents.
type scenario struct {
	name     string
	baseline string // the scenario with the same result without Gleaner

	policies      []*v1alpha1.ClusterGCPolicy
	module        *v1alpha1.ClusterPolicyModule
	policy        metav1.DeletionPropagation // requested by the client; "": none
	requestedWait time.Duration              // requested by a policy

	orphaned bool // the dependents stay, without owner references
	held     bool // owners have holds
	vetoed   bool // the webhook is called for the dependents
}

const (
	aloneBackground = "alone, background"
	aloneForeground = "alone, foreground"
	aloneOrphan     = "alone, orphan"
)

// upstreamScenarios returns the scenarios without Gleaner.
func upstreamScenarios() []scenario {
	return []scenario{
		{name: aloneBackground, baseline: aloneBackground},
		{name: aloneForeground, baseline: aloneForeground, policy: metav1.DeletePropagationForeground},
		{name: aloneOrphan, baseline: aloneOrphan, policy: metav1.DeletePropagationOrphan, orphaned: true},
	}
}

// governing returns a policy with fixed verdicts for one resource.
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

// waitOnceModule waits the first time that it is evaluated for an object.
const waitOnceModule = `package gleaner
collect := {"decision": "Wait", "after": "%s"} if input.attempt == 1
else := {"decision": "Delete"}
`

// companionScenarios returns the scenarios with Gleaner. Owners are Secrets, and dependents ConfigMaps.
func companionScenarios() []scenario {
	elsewhere := []*v1alpha1.ClusterGCPolicy{governing("elsewhere", "persistentvolumeclaims", "Orphan", "Orphan")}
	unselected := []*v1alpha1.ClusterGCPolicy{governing("unselected-owners", "secrets", "Orphan", ""), governing("unselected-dependents", "configmaps", "", "Orphan")}
	for _, p := range unselected {
		p.Spec.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"bench.example.com/governed": "yes"}}
	}
	module := regoModule("bench-waiting", fmt.Sprintf(waitOnceModule, requestedWait))
	waiting := policyOf("collect", v1alpha1.NeedReference, module)
	propagate := func(decision string) []*v1alpha1.ClusterGCPolicy {
		return []*v1alpha1.ClusterGCPolicy{governing("propagate", "secrets", decision, "")}
	}
	collect := func(decision string) []*v1alpha1.ClusterGCPolicy {
		return []*v1alpha1.ClusterGCPolicy{governing("collect", "configmaps", "", decision)}
	}
	scenarios := []scenario{
		{name: "other resources governed, background", baseline: aloneBackground, policies: elsewhere},
		{name: "other resources governed, foreground", baseline: aloneForeground, policies: elsewhere, policy: metav1.DeletePropagationForeground},
		{name: "other resources governed, orphan", baseline: aloneOrphan, policies: elsewhere, policy: metav1.DeletePropagationOrphan, orphaned: true},
		{name: "other labels governed, background", baseline: aloneBackground, policies: unselected},
		{name: "propagate: Background", baseline: aloneBackground, policies: propagate("Background"), held: true},
		{name: "propagate: Foreground", baseline: aloneForeground, policies: propagate("Foreground"), held: true},
		{name: "propagate: Orphan", baseline: aloneOrphan, policies: propagate("Orphan"), held: true, orphaned: true},
		{name: "collect: Delete", baseline: aloneBackground, policies: collect("Delete"), vetoed: true},
		{name: "collect: Orphan", baseline: aloneBackground, policies: collect("Orphan"), vetoed: true, orphaned: true},
	}
	return append(scenarios, scenario{
		name: fmt.Sprintf("collect: Wait for %s, then Delete", requestedWait), baseline: aloneBackground, vetoed: true, requestedWait: requestedWait,
		policies: []*v1alpha1.ClusterGCPolicy{waiting}, module: module,
	})
}

// measureCompanion measures the cost of a companion in addition to the built-in collector:
// for objects that policies govern, and for others.
func (f companionBench) measureCompanion(ctx context.Context, r *report, b budget) error {
	c, err := f.define(ctx)
	if err != nil {
		return err
	}
	figures := map[string][]scenarioFigures{}
	take := func(gleaner *gleanerProcess, scenarios []scenario) error {
		for _, a := range scenarios {
			d, err := f.measureScenario(ctx, c, gleaner, a)
			if err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
			progress("%s: p50 %.1f ms, %.1f calls; in parallel: %.0f owners/s", a.name, percentile(d.delays, 50), d.sequential.calls, d.perSecond)
			figures[a.name] = append(figures[a.name], d)
		}
		return nil
	}
	both := newCompanion(f.cluster, f.settings)
	alone, companion := f.chosen()
	for range f.rounds {
		if err := f.with(ctx, f.contenders[0], b, func() error { return take(nil, alone) }); err != nil {
			return err
		}
		if err := f.with(ctx, both, b, func() error { return take(&both.gleaner, companion) }); err != nil {
			return err
		}
	}
	scenarios := slices.Concat(alone, companion)
	r.tables = append(r.tables, costTable(scenarios, figures), f.parallelTable(scenarios, figures))
	return nil
}

// chosen returns the scenarios to measure: those with Gleaner that the flag selects, and those
// without that they are compared with.
func (f companionBench) chosen() (alone, companion []scenario) {
	for _, a := range companionScenarios() {
		if f.scenarios.MatchString(a.name) {
			companion = append(companion, a)
		}
	}
	for _, a := range upstreamScenarios() {
		if slices.ContainsFunc(companion, func(c scenario) bool { return c.baseline == a.name }) {
			alone = append(alone, a)
		}
	}
	return alone, companion
}

// measureScenario measures one scenario.
func (f companionBench) measureScenario(ctx context.Context, c client.Client, gleaner *gleanerProcess, a scenario) (d scenarioFigures, err error) {
	if err := applyPolicies(ctx, c, a); err != nil {
		return d, err
	}
	namespace, err := f.namespace(ctx)
	if err != nil {
		return d, err
	}
	if err := f.waitForWebhook(ctx, c, gleaner, namespace, a); err != nil {
		return d, err
	}
	if err := f.deleteSequentially(ctx, gleaner, namespace, a, &d); err != nil {
		return d, fmt.Errorf("one by one: %w", err)
	}
	if err := f.deleteInParallel(ctx, gleaner, namespace, a, &d); err != nil {
		return d, fmt.Errorf("all at once: %w", err)
	}
	return d, removePolicies(ctx, c, a)
}

// applyPolicies applies a scenario's policies, and waits until they are in force.
func applyPolicies(ctx context.Context, c client.Client, a scenario) error {
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

// removePolicies deletes a scenario's policies, and waits until their admission objects
// are removed.
func removePolicies(ctx context.Context, c client.Client, a scenario) error {
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
				left = append(left, fmt.Errorf("policy %s still exists: %w", p.Name, err))
			}
		}
		if err := c.Get(ctx, client.ObjectKey{Name: "gleaner-veto"}, webhookConfiguration()); !apierrors.IsNotFound(err) {
			left = append(left, fmt.Errorf("webhook configuration still exists: %w", err))
		}
		return errors.Join(left...)
	})
}
