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

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/rights"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/whose"
	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// certificate is the Secret of the webhook's certificate that the operator makes.
const certificate = "gleaner-webhook"

// soon is how long before its end a certificate should have been renewed.
const soon = 7 * 24 * time.Hour

// webhook looks at the one that a companion keeps the other collector from objects
// with.
func (p *patient) webhook(ctx context.Context) []Finding {
	c, err := p.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, veto, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return p.unasked()
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
	found = append(found, p.certificate(ctx, c.Webhooks)...)
	return orOK(found, "%s has %d, and its certificates are good", veto, len(c.Webhooks))
}

// unasked is what to make of it that the API server has no webhook to ask.
func (p *patient) unasked() []Finding {
	if p.mode && !p.setup.Companion {
		return ok("none is needed")
	}
	if slices.ContainsFunc(p.book.Policies, vetoes) {
		if !p.setup.Companion {
			return []Finding{unknown("name the operator's namespace with --operator-namespace, or a replica with --endpoint", "there is no ValidatingWebhookConfiguration %s, and whether the operator runs as a companion, which needs one, is not known", veto)}
		}
		return []Finding{problem("see the conditions of the policies and the operator's log", "there is no ValidatingWebhookConfiguration %s: policies on what loses its owners are not carried out", veto)}
	}
	if found := p.unread("GCPolicies", "ClusterGCPolicies"); len(found) != 0 {
		return found
	}
	return ok("none is needed")
}

// vetoes reports whether a policy keeps objects from the other collector.
func vetoes(p whose.Policy) bool {
	return p.Spec.Mode == v1alpha1.ModeEnforce && p.Answers("collect") || p.Holds() && p.Spec.Explicit == v1alpha1.ExplicitOverride
}

// certificate looks at the one that the operator shows.
func (p *patient) certificate(ctx context.Context, webhooks []admissionv1.ValidatingWebhook) []Finding {
	name, folder := secretOf(p.pods)
	if name == "" {
		return []Finding{unknown("", "the webhook's certificate is in the folder %s of the operator's pods, which is no Secret", folder)}
	}
	s, err := p.kube.CoreV1().Secrets(p.setup.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return []Finding{problem("see that the operator runs, and its log", "there is no Secret %s/%s with the webhook's certificate", p.setup.Namespace, name)}
	case err != nil:
		return []Finding{unknown("", "Secret %s/%s can't be read: %v", p.setup.Namespace, name, err)}
	}
	shown := s.Data["tls.crt"]
	whose := "the certificate in Secret " + p.setup.Namespace + "/" + name
	found := ends(whose, shown)
	if slices.ContainsFunc(found, func(f Finding) bool { return f.Severity == Problem }) {
		return found
	}
	for _, w := range webhooks {
		if why := distrusted(w.ClientConfig, shown); why != "" {
			return append(found, problem("see the operator's log, and that it may write the configuration: gleaner rbac --check",
				"webhook %s: the API server does not accept %s: %s", w.Name, whose, why))
		}
	}
	return found
}

// secretOf is the Secret that the operator has its webhook's certificate from; "", if it
// is a folder that is none.
func secretOf(pods []corev1.Pod) (name, folder string) {
	for i := range pods {
		for _, c := range pods[i].Spec.Containers {
			if folder, _ := rights.FlagOf(c, "--webhook-cert-dir"); folder != "" {
				return mounted(&pods[i], c.VolumeMounts, folder), folder
			}
		}
	}
	return certificate, ""
}

// mounted is the Secret that is mounted at a folder; "" if none is.
func mounted(pod *corev1.Pod, mounts []corev1.VolumeMount, folder string) string {
	for _, m := range mounts {
		for _, v := range pod.Spec.Volumes {
			if path.Clean(m.MountPath) == path.Clean(folder) && v.Name == m.Name && v.Secret != nil {
				return v.Secret.SecretName
			}
		}
	}
	return ""
}

// distrusted is why the API server does not talk to who shows a certificate; "" if it
// does.
func distrusted(c admissionv1.WebhookClientConfig, shown []byte) string {
	authorities, between := x509.NewCertPool(), x509.NewCertPool()
	authorities.AppendCertsFromPEM(c.CABundle)
	block, rest := pem.Decode(shown)
	if block == nil {
		return "it is no certificate"
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
