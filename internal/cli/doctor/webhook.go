package doctor

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"path"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/internal/cli/permissions"
)

// defaultSecret is the Secret with the webhook certificate that the operator issues.
const defaultSecret = "gleaner-webhook"

// renewalPeriod is the minimum remaining validity of a certificate: it should have been renewed before.
const renewalPeriod = 7 * 24 * time.Hour

// webhook checks the veto webhook of a companion.
func (p *checker) webhook(ctx context.Context) []Finding {
	c, err := p.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, vetoName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return p.missingWebhook()
	case err != nil:
		return []Finding{unknown("", "ValidatingWebhookConfiguration %s can't be read: %v", vetoName, err)}
	}
	var found []Finding
	if p.modeKnown && !p.setup.Companion {
		found = append(found, warning("kubectl delete validatingwebhookconfiguration "+vetoName, "ValidatingWebhookConfiguration %s is a leftover of companion mode", vetoName))
	}
	for _, w := range c.Webhooks {
		found = append(found, checkExpiration("the CA certificate of webhook "+w.Name, w.ClientConfig.CABundle)...)
		if why := p.unavailable(ctx, w.ClientConfig); why != "" {
			found = append(found, problem("check that the operator is running and its pods are ready; without an operator: kubectl delete validatingwebhookconfiguration "+vetoName,
				"webhook %s: %s: the built-in garbage collector can't delete the objects that its policies select", w.Name, why))
		}
	}
	found = append(found, p.certificate(ctx, c.Webhooks)...)
	return findingsOrOK(found, "%s has %d webhooks with valid certificates", vetoName, len(c.Webhooks))
}

// missingWebhook reports whether a missing webhook is a problem.
func (p *checker) missingWebhook() []Finding {
	if p.modeKnown && !p.setup.Companion {
		return ok("not needed")
	}
	if slices.ContainsFunc(p.resources.Policies, needsWebhook) {
		if !p.setup.Companion {
			return []Finding{unknown("set --operator-namespace or --endpoint", "ValidatingWebhookConfiguration %s not found, and the mode of the operator is unknown; a companion needs it", vetoName)}
		}
		return []Finding{problem("see the conditions of the policies and the operator's log", "ValidatingWebhookConfiguration %s not found: collect policies are not enforced", vetoName)}
	}
	if found := p.unread("GCPolicies", "ClusterGCPolicies"); len(found) != 0 {
		return found
	}
	return ok("not needed")
}

// needsWebhook reports whether a policy needs the veto webhook.
func needsWebhook(p finalizers.Policy) bool {
	return p.Spec.Mode == v1alpha1.ModeEnforce && p.HasHook("collect") || p.Holds() && p.Spec.ExplicitPropagation == v1alpha1.ExplicitPropagationOverride
}

// certificate checks the certificate that the webhook serves.
func (p *checker) certificate(ctx context.Context, webhooks []admissionv1.ValidatingWebhook) []Finding {
	name, dir := secretOf(p.pods)
	if name == "" {
		return []Finding{unknown("", "the webhook's certificate is in directory %s of the operator's pods, which is not a mounted Secret", dir)}
	}
	s, err := p.kube.CoreV1().Secrets(p.setup.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return []Finding{problem("check that the operator is running, and its log", "Secret %s/%s with the webhook's certificate not found", p.setup.Namespace, name)}
	case err != nil:
		return []Finding{unknown("", "Secret %s/%s can't be read: %v", p.setup.Namespace, name, err)}
	}
	shown := s.Data["tls.crt"]
	subject := "the certificate in Secret " + p.setup.Namespace + "/" + name
	found := checkExpiration(subject, shown)
	if slices.ContainsFunc(found, func(f Finding) bool { return f.Severity == Problem }) {
		return found
	}
	for _, w := range webhooks {
		if why := verifyCertificate(w.ClientConfig, shown); why != "" {
			return append(found, problem("check the operator's log, and its permission to update the configuration: gleaner rbac --check",
				"webhook %s: the API server does not trust %s: %s", w.Name, subject, why))
		}
	}
	return found
}

// secretOf returns the Secret with the webhook's certificate; "" if it comes from a directory
// that is not a mounted Secret.
func secretOf(pods []corev1.Pod) (name, dir string) {
	for i := range pods {
		for _, c := range pods[i].Spec.Containers {
			if dir, _ := permissions.FlagValue(c, "--webhook-cert-dir"); dir != "" {
				return mounted(&pods[i], c.VolumeMounts, dir), dir
			}
		}
	}
	return defaultSecret, ""
}

// mounted returns the Secret that is mounted at a directory, or "".
func mounted(pod *corev1.Pod, mounts []corev1.VolumeMount, dir string) string {
	for _, m := range mounts {
		for _, v := range pod.Spec.Volumes {
			if path.Clean(m.MountPath) == path.Clean(dir) && v.Name == m.Name && v.Secret != nil {
				return v.Secret.SecretName
			}
		}
	}
	return ""
}

// verifyCertificate returns why the API server does not trust a certificate; "" if it does.
func verifyCertificate(c admissionv1.WebhookClientConfig, shown []byte) string {
	authorities, between := x509.NewCertPool(), x509.NewCertPool()
	authorities.AppendCertsFromPEM(c.CABundle)
	block, rest := pem.Decode(shown)
	if block == nil {
		return "not a PEM certificate"
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err.Error()
	}
	between.AppendCertsFromPEM(rest)
	options := x509.VerifyOptions{Roots: authorities, Intermediates: between}
	if c.Service != nil {
		options.DNSName = c.Service.Name + "." + c.Service.Namespace + ".svc"
	}
	if _, err := leaf.Verify(options); err != nil {
		return err.Error()
	}
	return ""
}

// checkExpiration reports invalid, expired and soon expiring certificates.
func checkExpiration(subject string, data []byte) []Finding {
	const renew = "the operator renews it: check that it is running, and its log"
	block, _ := pem.Decode(data)
	if block == nil {
		return []Finding{problem(renew, "%s is not a PEM certificate", subject)}
	}
	c, err := x509.ParseCertificate(block.Bytes)
	switch left := time.Duration(0); {
	case err != nil:
		return []Finding{problem(renew, "%s is invalid: %v", subject, err)}
	default:
		if left = time.Until(c.NotAfter); left <= 0 {
			return []Finding{problem(renew, "%s expired at %s", subject, c.NotAfter.UTC().Format(time.RFC3339))}
		}
		if left < renewalPeriod {
			return []Finding{warning(renew, "%s expires at %s", subject, c.NotAfter.UTC().Format(time.RFC3339))}
		}
	}
	return nil
}
