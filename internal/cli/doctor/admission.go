package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Names and labels of the objects that the operator and its manifests create.
const (
	vetoName           = "gleaner-veto"
	holdParam          = "gleaner-holds"
	policyAuthorsName  = "gleaner-policy-authors"
	archiveReadersName = "gleaner-archive-readers" // of config/components/archive, as the next one
	archiveAuthorsName = "gleaner-archive-authors"

	retentionAuthorsName = "gleaner-retention-authors" // of config/components/retention
	managedBy            = "app.kubernetes.io/managed-by=gleaner"
)

// admission checks the admission policies that add holds and finalizers on creation.
func (p *checker) admission(ctx context.Context) []Finding {
	found := p.policyAuthors(ctx)
	api := p.kube.AdmissionregistrationV1()
	policies, err := api.MutatingAdmissionPolicies().List(ctx, metav1.ListOptions{LabelSelector: managedBy})
	if err != nil {
		return append(found, unknown("", "MutatingAdmissionPolicies can't be listed: %v", err))
	}
	bindings, err := api.MutatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{LabelSelector: managedBy})
	if err != nil {
		return append(found, unknown("", "MutatingAdmissionPolicyBindings can't be listed: %v", err))
	}
	for _, m := range policies.Items {
		if !slices.ContainsFunc(bindings.Items, func(b admissionv1.MutatingAdmissionPolicyBinding) bool { return b.Spec.PolicyName == m.Name }) {
			found = append(found, warning("check that the operator is running, and its permissions: gleaner rbac --check",
				"MutatingAdmissionPolicy %s has no binding: holds or finalizers are added only after objects were created", m.Name))
		}
	}
	for _, b := range bindings.Items {
		if b.Spec.ParamRef == nil {
			continue
		}
		_, err := p.kube.CoreV1().ConfigMaps(b.Spec.ParamRef.Namespace).Get(ctx, b.Spec.ParamRef.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			found = append(found, warning("check that the operator is running: it creates the ConfigMap",
				"ConfigMap %s/%s not found: %s is inactive, and holds or finalizers are added only after objects were created", b.Spec.ParamRef.Namespace, holdParam, b.Name))
		case err != nil:
			found = append(found, unknown("", "ConfigMap %s/%s can't be read: %v", b.Spec.ParamRef.Namespace, holdParam, err))
		}
	}
	return findingsOrOK(found, "policy authors need the permissions that their policies use, and %d admission policies add holds and finalizers", len(policies.Items))
}

// policyAuthors checks for the admission policies that prevent privilege escalation by policy authors.
func (p *checker) policyAuthors(ctx context.Context) []Finding {
	if !p.resources.Installed {
		return nil
	}
	found := p.validatingPolicy(ctx, policyAuthorsName, "kubectl apply -k config/admission", "authors of policies and finalizers can use the operator's permissions")
	if len(p.resources.Archives) != 0 {
		const fix = "apply config/components/archive again"
		found = append(found, p.validatingPolicy(ctx, archiveReadersName, fix, "authors of archive policies can read what they may not get")...)
		found = append(found, p.validatingPolicy(ctx, archiveAuthorsName, fix, "authors of archive policies can keep what they may not update")...)
	}
	if len(p.resources.Retentions) != 0 {
		found = append(found, p.validatingPolicy(ctx, retentionAuthorsName, "apply config/components/retention again", "authors of retention policies can have objects removed that they may not delete")...)
	}
	return found
}

// validatingPolicy checks for an admission policy with its binding; without says what its absence
// allows.
func (p *checker) validatingPolicy(ctx context.Context, name, fix, without string) []Finding {
	api := p.kube.AdmissionregistrationV1()
	_, err := api.ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		_, err = api.ValidatingAdmissionPolicyBindings().Get(ctx, name, metav1.GetOptions{})
	}
	switch {
	case apierrors.IsNotFound(err):
		return []Finding{warning(fix, "ValidatingAdmissionPolicy %s or its binding not found: %s", name, without)}
	case err != nil:
		return []Finding{unknown("", "ValidatingAdmissionPolicy %s can't be read: %v", name, err)}
	}
	return nil
}

// unavailable returns why a webhook's Service has no endpoints; "" if it has, or they are unknown.
func (p *checker) unavailable(ctx context.Context, c admissionv1.WebhookClientConfig) string {
	s := c.Service
	if s == nil {
		return ""
	}
	if _, err := p.kube.CoreV1().Services(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return fmt.Sprintf("Service %s/%s not found", s.Namespace, s.Name)
	}
	slices, err := p.kube.DiscoveryV1().EndpointSlices(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + s.Name})
	if err != nil {
		return "" // unknown
	}
	for _, list := range slices.Items {
		for _, e := range list.Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) {
				return ""
			}
		}
	}
	return fmt.Sprintf("Service %s/%s has no ready endpoints", s.Namespace, s.Name)
}

// otherWebhooks checks other webhooks for deletes and updates that are unavailable: objects that
// they match can't be collected.
func (p *checker) otherWebhooks(ctx context.Context) []Finding {
	api := p.kube.AdmissionregistrationV1()
	validating, err := api.ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return []Finding{unknown("", "ValidatingWebhookConfigurations can't be listed: %v", err)}
	}
	mutating, err := api.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return []Finding{unknown("", "MutatingWebhookConfigurations can't be listed: %v", err)}
	}
	var found []Finding
	look := func(name string, fails *admissionv1.FailurePolicyType, rules []admissionv1.RuleWithOperations, c admissionv1.WebhookClientConfig) {
		if fails != nil && *fails == admissionv1.Ignore || !matchesDeletes(rules) {
			return
		}
		if why := p.unavailable(ctx, c); why != "" {
			found = append(found, problem("fix it, delete its configuration, or set its failurePolicy to Ignore",
				"webhook %s: %s: matching deletes or updates fail (failurePolicy: Fail)", name, why))
		}
	}
	for _, c := range validating.Items {
		for _, w := range c.Webhooks {
			if c.Name != vetoName {
				look(c.Name+"/"+w.Name, w.FailurePolicy, w.Rules, w.ClientConfig)
			}
		}
	}
	for _, c := range mutating.Items {
		for _, w := range c.Webhooks {
			look(c.Name+"/"+w.Name, w.FailurePolicy, w.Rules, w.ClientConfig)
		}
	}
	return findingsOrOK(found, "no unavailable webhook blocks deletes")
}

// matchesDeletes reports whether a webhook matches deletes or updates of objects.
func matchesDeletes(rules []admissionv1.RuleWithOperations) bool {
	return slices.ContainsFunc(rules, func(r admissionv1.RuleWithOperations) bool {
		return slices.ContainsFunc(r.Operations, func(o admissionv1.OperationType) bool {
			return o == admissionv1.OperationAll || o == admissionv1.Delete || o == admissionv1.Update
		}) && slices.ContainsFunc(r.Resources, func(name string) bool { return !strings.Contains(name, "/") || name == "*/*" })
	})
}
