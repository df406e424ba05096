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

// Names that Gleaner gives to what it makes, and its manifests have.
const (
	veto      = "gleaner-veto"
	holdParam = "gleaner-holds"
	authors   = "gleaner-policy-authors"
	managed   = "app.kubernetes.io/managed-by=gleaner"
)

// admission looks at what the API server does for Gleaner as objects are created.
func (p *patient) admission(ctx context.Context) []Finding {
	found := p.authors(ctx)
	api := p.kube.AdmissionregistrationV1()
	policies, err := api.MutatingAdmissionPolicies().List(ctx, metav1.ListOptions{LabelSelector: managed})
	if err != nil {
		return append(found, unknown("", "MutatingAdmissionPolicies can't be listed: %v", err))
	}
	bindings, err := api.MutatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{LabelSelector: managed})
	if err != nil {
		return append(found, unknown("", "MutatingAdmissionPolicyBindings can't be listed: %v", err))
	}
	for _, m := range policies.Items {
		if !slices.ContainsFunc(bindings.Items, func(b admissionv1.MutatingAdmissionPolicyBinding) bool { return b.Spec.PolicyName == m.Name }) {
			found = append(found, warning("see that the operator runs, and its rights: gleaner rbac --check",
				"MutatingAdmissionPolicy %s has no binding: holds or finalizers come to objects only after these were created", m.Name))
		}
	}
	for _, b := range bindings.Items {
		if b.Spec.ParamRef == nil {
			continue
		}
		_, err := p.kube.CoreV1().ConfigMaps(b.Spec.ParamRef.Namespace).Get(ctx, b.Spec.ParamRef.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			found = append(found, warning("see that the operator runs: it makes it",
				"there is no ConfigMap %s/%s: %s is disarmed, and holds or finalizers come to objects only after these were created", b.Spec.ParamRef.Namespace, holdParam, b.Name))
		case err != nil:
			found = append(found, unknown("", "ConfigMap %s/%s can't be read: %v", b.Spec.ParamRef.Namespace, holdParam, err))
		}
	}
	return orOK(found, "authors of policies need the rights that these make use of, and %d admission policies place holds and finalizers", len(policies.Items))
}

// authors looks for what keeps authors of policies from rights that they don't have.
func (p *patient) authors(ctx context.Context) []Finding {
	if !p.book.Installed {
		return nil
	}
	api := p.kube.AdmissionregistrationV1()
	_, err := api.ValidatingAdmissionPolicies().Get(ctx, authors, metav1.GetOptions{})
	if err == nil {
		_, err = api.ValidatingAdmissionPolicyBindings().Get(ctx, authors, metav1.GetOptions{})
	}
	switch {
	case apierrors.IsNotFound(err):
		return []Finding{warning("kubectl apply -k config/admission",
			"the ValidatingAdmissionPolicy %s or its binding is not there: whoever may write policies or finalizers can make use of the operator's rights", authors)}
	case err != nil:
		return []Finding{unknown("", "ValidatingAdmissionPolicy %s can't be read: %v", authors, err)}
	}
	return nil
}

// unserved is why nobody answers at a webhook's Service; "" if somebody should.
func (p *patient) unserved(ctx context.Context, c admissionv1.WebhookClientConfig) string {
	s := c.Service
	if s == nil {
		return ""
	}
	if _, err := p.kube.CoreV1().Services(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return fmt.Sprintf("there is no Service %s/%s", s.Namespace, s.Name)
	}
	slices, err := p.kube.DiscoveryV1().EndpointSlices(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + s.Name})
	if err != nil {
		return "" // it is not known to be so
	}
	for _, list := range slices.Items {
		for _, e := range list.Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) {
				return ""
			}
		}
	}
	return fmt.Sprintf("nothing is ready behind the Service %s/%s", s.Namespace, s.Name)
}

// strangers looks at other webhooks that deletes and finalizers have to pass, and
// that are away: then nothing of what they are asked about can be collected.
func (p *patient) strangers(ctx context.Context) []Finding {
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
		if fails != nil && *fails == admissionv1.Ignore || !stops(rules) {
			return
		}
		if why := p.unserved(ctx, c); why != "" {
			found = append(found, problem("mend it, delete its configuration, or set its failurePolicy to Ignore",
				"webhook %s is asked about deletes or updates, and %s: these fail (failurePolicy: Fail)", name, why))
		}
	}
	for _, c := range validating.Items {
		for _, w := range c.Webhooks {
			if c.Name != veto {
				look(c.Name+"/"+w.Name, w.FailurePolicy, w.Rules, w.ClientConfig)
			}
		}
	}
	for _, c := range mutating.Items {
		for _, w := range c.Webhooks {
			look(c.Name+"/"+w.Name, w.FailurePolicy, w.Rules, w.ClientConfig)
		}
	}
	return orOK(found, "none that is away stops a delete")
}

// stops reports whether a webhook has a say in what collecting takes.
func stops(rules []admissionv1.RuleWithOperations) bool {
	return slices.ContainsFunc(rules, func(r admissionv1.RuleWithOperations) bool {
		return slices.ContainsFunc(r.Operations, func(o admissionv1.OperationType) bool {
			return o == admissionv1.OperationAll || o == admissionv1.Delete || o == admissionv1.Update
		}) && slices.ContainsFunc(r.Resources, func(name string) bool { return !strings.Contains(name, "/") || name == "*/*" })
	})
}
