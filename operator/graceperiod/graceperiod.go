// Package graceperiod stores the grace period of requests to delete owners, for policies that have dependents inherit it.
// The API server passes it to webhooks, and stores it only for types that are deleted gracefully, such as Pods.
//
// A webhook stores it in an annotation of the owner. It denies no request, and decides nothing.
package graceperiod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/webhook"
	"github.com/gleaner-dev/gleaner/policies"
)

const (
	// ConfigurationName is the name of the ValidatingWebhookConfiguration, which exists while a policy may have
	// dependents inherit the grace period.
	ConfigurationName = "gleaner-grace-period"

	// Path is the path of the webhook.
	Path = "/grace-period"

	webhookName = "grace-period.gleaner.dev"

	// webhookTimeout in seconds is longer than storing a grace period may take.
	webhookTimeout = 4
)

var errNoWebhook = errors.New("the API server tells it to webhooks only, and Gleaner serves none: start it with --enable-webhooks")

// Inherits reports whether a policy may have dependents inherit the grace period of a request. What a module decides is
// not known before.
func Inherits(p *policyset.Policy) bool { return p.RequiresHold() && (p.Spec.Fixed == nil || asks(p)) }

// asks reports whether a policy always has dependents inherit it.
func asks(p *policyset.Policy) bool {
	return p.RequiresHold() && p.Spec.Fixed != nil && p.Spec.Fixed.Propagate != nil && p.Spec.Fixed.Propagate.InheritGracePeriod
}

// Options configure an Installer.
type Options struct {
	Objects   *admission.Objects
	Snapshots *policyset.Publisher
	Gate      *gate.Gate        // only the leader installs
	Webhook   *webhook.Endpoint // nil: Gleaner serves no webhooks, and nothing is installed
	Now       func() time.Time
	Log       logr.Logger
}

// Installer installs the webhook. Create it with New.
type Installer struct {
	*admission.Loop

	options Options
}

// New returns an Installer.
func New(o Options) *Installer {
	i := &Installer{options: o}
	i.Loop = admission.NewLoop(admission.LoopOptions{
		Snapshots: o.Snapshots, Gate: o.Gate, Webhook: o.Webhook, Resync: admission.ResyncInterval, Now: o.Now, Log: o.Log,
		Failure: "The webhook that stores the grace periods of requests is not installed",
	}, i)
	return i
}

// Inputs implements admission.Installation.
func (i *Installer) Inputs(*policyset.Snapshot) string { return "" }

// Install implements admission.Installation.
func (i *Installer) Install(ctx context.Context, s *policyset.Snapshot) admission.Failures {
	rules := rulesOf(s)
	if i.options.Webhook == nil {
		rules = nil
	}
	err := i.install(ctx, rules)
	if err == nil && i.options.Webhook == nil && slices.ContainsFunc(s.Policies, asks) {
		err = errNoWebhook
	}
	if err != nil {
		return admission.Failures{ConfigurationName: err}
	}
	return nil
}

func (i *Installer) install(ctx context.Context, rules []admissionv1.RuleWithOperations) error {
	objects := i.options.Objects
	configuration := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName}}
	if len(rules) == 0 {
		return objects.Remove(ctx, configuration)
	}
	config, ok := i.options.Webhook.At(Path)
	if !ok {
		return admission.ErrNoCertificate
	}
	return objects.Ensure(ctx, configuration, func() {
		configuration.Webhooks = []admissionv1.ValidatingWebhook{webhookOf(rules, config, objects.ExemptNamespaces())}
	})
}

// webhookOf returns the webhook. Fields that the API server would default are set, so that nothing differs when nothing
// has changed.
func webhookOf(rules []admissionv1.RuleWithOperations, config admissionv1.WebhookClientConfig, exempt metav1.LabelSelectorRequirement) admissionv1.ValidatingWebhook {
	return admissionv1.ValidatingWebhook{
		Name: webhookName, ClientConfig: config, Rules: rules, FailurePolicy: ptr.To(admissionv1.Ignore), MatchPolicy: ptr.To(admissionv1.Equivalent),
		SideEffects: ptr.To(admissionv1.SideEffectClassNoneOnDryRun), TimeoutSeconds: ptr.To[int32](webhookTimeout), AdmissionReviewVersions: []string{"v1"},
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{exempt}}, ObjectSelector: &metav1.LabelSelector{},
		MatchConditions: []admissionv1.MatchCondition{
			{Name: "gleaner.dev/held", Expression: fmt.Sprintf("%q in oldObject.metadata.?finalizers.orValue([])", graph.Hold)},
			{Name: "gleaner.dev/not-being-deleted", Expression: "!has(oldObject.metadata.deletionTimestamp)"},
			{Name: "gleaner.dev/has-or-had-grace-period", Expression: fmt.Sprintf(
				"has(request.options) && has(request.options.gracePeriodSeconds) || %q in oldObject.metadata.?annotations.orValue({})", objectstate.GracePeriodAnnotation)},
		},
	}
}

// rulesOf returns the rules of the webhook: deletions of the resources of policies that may have dependents inherit the
// grace period.
func rulesOf(s *policyset.Snapshot) []admissionv1.RuleWithOperations {
	var all []admissionv1.RuleWithOperations
	for _, p := range s.Policies {
		if !Inherits(p) {
			continue
		}
		for _, r := range p.Policy.Rules {
			rule := deletesOf(r.Groups, r.Resources)
			if !slices.ContainsFunc(all, func(other admissionv1.RuleWithOperations) bool {
				return slices.Equal(other.APIGroups, rule.APIGroups) && slices.Equal(other.Resources, rule.Resources)
			}) {
				all = append(all, rule)
			}
		}
	}
	if len(all) > admission.MaxPolicies {
		everything := []string{policies.Wildcard}
		return []admissionv1.RuleWithOperations{deletesOf(everything, everything)}
	}
	return all
}

func deletesOf(groups, resources []string) admissionv1.RuleWithOperations {
	return admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Delete},
		Rule:       admissionv1.Rule{APIGroups: groups, APIVersions: []string{policies.Wildcard}, Resources: resources, Scope: ptr.To(admissionv1.AllScopes)},
	}
}
