package doctor

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/whose"
)

// Names that Gleaner gives to what it makes, and its manifests have.
const (
	veto        = "gleaner-veto"
	certificate = "gleaner-webhook"
	holdParam   = "gleaner-holds"
	authors     = "gleaner-policy-authors"
	managed     = "app.kubernetes.io/managed-by=gleaner"
)

// soon is how long before its end a certificate should have been renewed.
const soon = 7 * 24 * time.Hour

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

// webhook looks at the one that a companion keeps the other collector from objects
// with.
func (p *patient) webhook(ctx context.Context) []Finding {
	c, err := p.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, veto, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && p.setup.Companion && slices.ContainsFunc(p.book.Policies, collects):
		return []Finding{problem("see the conditions of the policies and the operator's log", "there is no ValidatingWebhookConfiguration %s: policies on what loses its owners are not carried out", veto)}
	case apierrors.IsNotFound(err):
		return ok("none is needed")
	case err != nil:
		return []Finding{unknown("", "ValidatingWebhookConfiguration %s can't be read: %v", veto, err)}
	}
	var found []Finding
	if p.mode && !p.setup.Companion {
		found = append(found, warning("kubectl delete validatingwebhookconfiguration "+veto, "ValidatingWebhookConfiguration %s is left from running as a companion", veto))
	}
	for _, w := range c.Webhooks {
		found = append(found, ends("the authority of webhook "+w.Name, w.ClientConfig.CABundle)...)
		if why := p.unserved(ctx, w.ClientConfig); why != "" {
			found = append(found, problem("see that the operator runs and its pods are ready; without it: kubectl delete validatingwebhookconfiguration "+veto,
				"webhook %s: %s: the other collector can delete nothing that these policies select", w.Name, why))
		}
	}
	found = append(found, p.certificate(ctx)...)
	return orOK(found, "%s has %d, and its certificates are good", veto, len(c.Webhooks))
}

func collects(p whose.Policy) bool { return p.Spec.Mode == "Enforce" && p.Answers("collect") }

// certificate looks at the one that the operator shows.
func (p *patient) certificate(ctx context.Context) []Finding {
	s, err := p.kube.CoreV1().Secrets(p.setup.Namespace).Get(ctx, certificate, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return []Finding{problem("see that the operator runs, and its log", "there is no Secret %s/%s with the webhook's certificate", p.setup.Namespace, certificate)}
	case err != nil:
		return []Finding{unknown("", "Secret %s/%s can't be read: %v", p.setup.Namespace, certificate, err)}
	}
	return ends("the certificate in Secret "+p.setup.Namespace+"/"+certificate, s.Data["tls.crt"])
}

// ends tells of certificates that are over, or soon will be.
func ends(whose string, data []byte) []Finding {
	const renew = "the operator renews it: see that it runs, and its log"
	block, _ := pem.Decode(data)
	if block == nil {
		return []Finding{problem(renew, "%s is no certificate", whose)}
	}
	c, err := x509.ParseCertificate(block.Bytes)
	switch left := time.Duration(0); {
	case err != nil:
		return []Finding{problem(renew, "%s can't be read: %v", whose, err)}
	default:
		if left = time.Until(c.NotAfter); left <= 0 {
			return []Finding{problem(renew, "%s ended at %s", whose, c.NotAfter.UTC().Format(time.RFC3339))}
		}
		if left < soon {
			return []Finding{warning(renew, "%s ends at %s", whose, c.NotAfter.UTC().Format(time.RFC3339))}
		}
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
