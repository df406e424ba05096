package protect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/policies"
)

// policySpec returns the admission policy for a policy, for requests of users except for those that are exempt. Fields
// that the API server would default are set, so that nothing differs when nothing has changed.
func (plan Plan) policySpec(p *policyset.Policy, versions Versions, exempt metav1.LabelSelectorRequirement, users ...string) admissionv1.ValidatingAdmissionPolicySpec {
	spec := admissionv1.ValidatingAdmissionPolicySpec{
		ParamKind:     &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
		FailurePolicy: ptr.To(failurePolicy(p)),
		MatchConstraints: &admissionv1.MatchResources{
			MatchPolicy: ptr.To(admissionv1.Equivalent), NamespaceSelector: namespaces(p, exempt), ObjectSelector: objects(p),
		},
		MatchConditions: matchConditions(p, users...),
		Validations: []admissionv1.Validation{{
			Expression: plan.exempts(p), Reason: ptr.To(metav1.StatusReasonForbidden), Message: Message(p.Policy.String(), p.Policy.Enforce, p.Spec.Fixed.Protect.Reason),
		}},
	}
	for _, r := range rules(p, versions) {
		spec.MatchConstraints.ResourceRules = append(spec.MatchConstraints.ResourceRules, admissionv1.NamedRuleWithOperations{RuleWithOperations: r})
	}
	for _, name := range sortedKeys(variables) {
		spec.Variables = append(spec.Variables, admissionv1.Variable{Name: name, Expression: variables[name]})
	}
	return spec
}

// exempts is true for objects that other policies allow to be deleted.
func (plan Plan) exempts(p *policyset.Policy) string {
	all := []string{"false"}
	for _, by := range plan.allowing {
		if e := exemption(by, p); e != "" {
			all = append(all, "("+e+")")
		}
	}
	return strings.Join(all, " || ")
}

// bindingSpec returns the binding of the admission policy for a policy.
func bindingSpec(p *policyset.Policy, parameter *admissionv1.ParamRef) admissionv1.ValidatingAdmissionPolicyBindingSpec {
	actions := []admissionv1.ValidationAction{admissionv1.Deny}
	if !p.Policy.Enforce {
		actions = []admissionv1.ValidationAction{admissionv1.Warn, admissionv1.Audit}
	}
	return admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: Name(p), ParamRef: parameter, ValidationActions: actions}
}

const (
	// webhookName is the name of the webhook in each configuration. Users see the name of the policy in the message.
	webhookName = "protect.gleaner.dev"

	// webhookTimeout in seconds is longer than an answer takes.
	webhookTimeout = 5
)

// webhookOf returns the webhook for a policy.
func webhookOf(p *policyset.Policy, versions Versions, config admissionv1.WebhookClientConfig, exempt metav1.LabelSelectorRequirement, users ...string) admissionv1.ValidatingWebhook {
	return admissionv1.ValidatingWebhook{
		Name: webhookName, ClientConfig: config, FailurePolicy: ptr.To(failurePolicy(p)),
		MatchPolicy: ptr.To(admissionv1.Equivalent), SideEffects: ptr.To(admissionv1.SideEffectClassNone),
		TimeoutSeconds: ptr.To[int32](webhookTimeout), AdmissionReviewVersions: []string{"v1"},
		Rules: rules(p, versions), NamespaceSelector: namespaces(p, exempt), ObjectSelector: objects(p),
		MatchConditions: matchConditions(p, users...),
	}
}

// failurePolicy allows a request that can't be decided about only if the policy says so.
func failurePolicy(p *policyset.Policy) admissionv1.FailurePolicyType {
	if !p.Policy.Enforce || p.Spec.OnFault == v1alpha1.OnFaultDefault && !p.HostError && p.Loading.IsZero() {
		return admissionv1.Ignore
	}
	return admissionv1.Fail
}

// matchConditions match requests of users about objects that meet the conditions of a policy and are not being deleted.
func matchConditions(p *policyset.Policy, users ...string) []admissionv1.MatchCondition {
	all := []admissionv1.MatchCondition{
		{Name: "gleaner.dev/by-a-user", Expression: byUser(users...)},
		{Name: "gleaner.dev/not-of-gleaner", Expression: fmt.Sprintf("request.resource.group != %q", v1alpha1.GroupVersion.Group)},
		{Name: "gleaner.dev/not-being-deleted", Expression: notDeleting},
	}
	if conditions := meets(p.MatchConditions); conditions != "" {
		all = append(all, admissionv1.MatchCondition{Name: "gleaner.dev/governed", Expression: conditions})
	}
	return all
}

// rules select DELETE requests for the resources of a policy. The API server does not apply a namespace selector to
// cluster-scoped objects, which have no labels of a namespace: they are selected by scope.
//
// A resource that is named is selected in its preferred version. The API server converts objects in requests of other
// versions to it, so that conditions are about the same fields as everywhere else.
func rules(p *policyset.Policy, versions Versions) []admissionv1.RuleWithOperations {
	scope := admissionv1.AllScopes
	if s := p.Policy.NamespaceSelector; s != nil && !s.Matches(labels.Set{}) {
		scope = admissionv1.NamespacedScope
	}
	all := make([]admissionv1.RuleWithOperations, 0, len(p.Policy.Rules))
	add := func(groups []string, version string, resources []string) {
		all = append(all, admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Delete},
			Rule:       admissionv1.Rule{APIGroups: groups, APIVersions: []string{version}, Resources: resources, Scope: ptr.To(scope)},
		})
	}
	for _, r := range p.Policy.Rules {
		if slices.ContainsFunc(r.Groups, isWildcard) || slices.ContainsFunc(r.Resources, isWildcard) {
			add(r.Groups, policies.Wildcard, r.Resources)
			continue
		}
		for _, group := range r.Groups {
			byVersion := map[string][]string{}
			for _, resource := range r.Resources {
				v := versions(schema.GroupResource{Group: group, Resource: resource})
				byVersion[v] = append(byVersion[v], resource)
			}
			for _, v := range sortedKeys(byVersion) {
				add([]string{group}, cmp.Or(v, policies.Wildcard), byVersion[v])
			}
		}
	}
	return all
}

func namespaces(p *policyset.Policy, exempt metav1.LabelSelectorRequirement) *metav1.LabelSelector {
	s := selector(p.NamespaceSelector)
	s.MatchExpressions = append(s.MatchExpressions, exempt)
	return s
}

func objects(p *policyset.Policy) *metav1.LabelSelector { return selector(p.ObjectSelector) }

func selector(s *metav1.LabelSelector) *metav1.LabelSelector {
	if s == nil {
		return &metav1.LabelSelector{}
	}
	return s.DeepCopy()
}

// Message returns the message of a denied request. The API server accepts one line.
func Message(policy string, enforce bool, reason string) string {
	verb := "denies this deletion"
	if !enforce {
		verb = "would deny this deletion with mode: Enforce"
	}
	if reason = strings.Join(strings.Fields(reason), " "); reason == "" {
		return policy + " " + verb
	}
	return policy + " " + verb + ": " + reason
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
