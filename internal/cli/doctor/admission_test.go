package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
)

// authority signs certificates.
type authority struct {
	t        *testing.T
	key      *ecdsa.PrivateKey
	template *x509.Certificate
	pem      []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, key: key, template: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-2 * 365 * day), NotAfter: time.Now().Add(2 * 365 * day),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	a.pem = a.sign(a.template)
	return a
}

func (a *authority) sign(c *x509.Certificate) []byte {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, a.template, a.key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// defaultSecret makes one that is good for so long, or has been over since, and for a host.
func (a *authority) certificate(left time.Duration, host string) []byte {
	end := time.Now().Add(left)
	return a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotBefore: end.Add(-365 * day), NotAfter: end,
	})
}

// certificateFor makes one that is good for so long, or has been over since.
func certificateFor(t *testing.T, left time.Duration) []byte {
	t.Helper()
	return newAuthority(t).certificate(left, host)
}

// host is what the API server calls the webhook's Service.
const host = "gleaner-webhook.g.svc"

const day = 24 * time.Hour

func TestCertificates_WarnBeforeExpiration(t *testing.T) {
	for claim, c := range map[string]struct {
		data  []byte
		words string
		want  Severity
	}{
		"expired":      {certificateFor(t, -day), "it expired at", Problem},
		"expires soon": {certificateFor(t, 6*day), "it expires at", Warning},
		"missing":      {nil, "it is not a PEM certificate", Problem},
		"invalid":      {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), "it is invalid", Problem},
		"not PEM":      {[]byte("hello"), "it is not a PEM certificate", Problem},
	} {
		t.Run(claim, func(t *testing.T) { wantFindings(t, checkExpiration("it", c.data), c.words, c.want) })
	}
	if found := checkExpiration("it", certificateFor(t, 8*day)); len(found) != 0 {
		t.Errorf("of one that is good it finds %v", found)
	}
}

const (
	vetoPath    = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/gleaner-veto"
	servicePath = "/api/v1/namespaces/g/services/gleaner-webhook"
	slicesPath  = "/apis/discovery.k8s.io/v1/namespaces/g/endpointslices"
	secretPath  = "/api/v1/namespaces/g/secrets/gleaner-webhook"
)

// vetoed is a cluster whose webhook is as it should be.
func vetoed(t *testing.T) served {
	t.Helper()
	return vetoedBy(newAuthority(t))
}

func vetoedBy(a *authority) served {
	return served{
		vetoPath: admissionv1.ValidatingWebhookConfiguration{
			TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
			Webhooks: []admissionv1.ValidatingWebhook{{Name: "veto.gleaner.dev", ClientConfig: admissionv1.WebhookClientConfig{
				CABundle: a.pem, Service: &admissionv1.ServiceReference{Namespace: "g", Name: "gleaner-webhook"},
			}}},
		},
		servicePath: corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}},
		slicesPath:  behind(nil, ptr.To(false), ptr.To(true)),
		secretPath:  secret(a.certificate(365*day-time.Hour, host)),
	}
}

func secret(certificate []byte) corev1.Secret {
	return corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Data: map[string][]byte{"tls.crt": certificate}}
}

// behind is a Service's endpoints, by whether they are ready.
func behind(ready ...*bool) discoveryv1.EndpointSliceList {
	var slice discoveryv1.EndpointSlice
	for _, is := range ready {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: is}})
	}
	return discoveryv1.EndpointSliceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}, Items: []discoveryv1.EndpointSlice{slice},
	}
}

func TestWebhook_Checks(t *testing.T) {
	a := newAuthority(t)
	for claim, c := range map[string]struct {
		change func(served)
		words  string
		want   []Severity
	}{
		"its certificate is for another host": {func(s served) { s[secretPath] = secret(a.certificate(day*100, "other.g.svc")) }, "the API server does not trust", []Severity{Problem}},
		"its certificate is another's":        {func(s served) { s[secretPath] = secret(certificateFor(t, day*100)) }, "the API server does not trust", []Severity{Problem}},
		"all is well":                         {func(served) {}, "with valid certificates", []Severity{OK}},
		"its Service is gone":                 {func(s served) { delete(s, servicePath) }, "Service g/gleaner-webhook not found", []Severity{Problem}},
		"nothing is behind it":                {func(s served) { s[slicesPath] = behind() }, "has no ready endpoints", []Severity{Problem}},
		"nothing behind it is well":           {func(s served) { s[slicesPath] = behind(ptr.To(false)) }, "has no ready endpoints", []Severity{Problem}},
		"its certificate is gone":             {func(s served) { delete(s, secretPath) }, "Secret g/gleaner-webhook with the webhook's certificate not found", []Severity{Problem}},
		"its certificate ends soon":           {func(s served) { s[secretPath] = secret(a.certificate(day, host)) }, "in Secret g/gleaner-webhook expires at", []Severity{Warning}},
		"there is none, nor a need":           {func(s served) { delete(s, vetoPath) }, "not needed", []Severity{OK}},
	} {
		t.Run(claim, func(t *testing.T) {
			answers := vetoedBy(a)
			c.change(answers)
			p := checkerAt(t, answers)
			p.setup.Namespace, p.setup.Companion, p.modeKnown = "g", true, true
			wantFindings(t, p.webhook(t.Context()), c.words, c.want...)
		})
	}
}

func TestWebhook_MissingForCollectPolicies(t *testing.T) {
	p := checkerAt(t, nil)
	p.setup.Companion = true
	p.resources.Policies = []finalizers.Policy{{}}
	p.resources.Policies[0].Spec.Mode = v1alpha1.ModeEnforce
	p.resources.Policies[0].Spec.Fixed = &v1alpha1.FixedVerdicts{Collect: &v1alpha1.FixedVerdict{}}
	wantFindings(t, p.webhook(t.Context()), "collect policies are not enforced", Problem)
}

// With cert-manager it is in another Secret, and one that Gleaner made before says nothing.
func TestWebhook_UsesMountedCertificate(t *testing.T) {
	a := newAuthority(t)
	answers := vetoedBy(a)
	answers[secretPath] = secret(a.certificate(-day, host))
	answers["/api/v1/namespaces/g/secrets/tls"] = secret(a.certificate(100*day, host))
	p := checkerAt(t, answers)
	p.setup.Namespace, p.setup.Companion, p.modeKnown = "g", true, true
	volume := corev1.Volume{Name: "certs", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "tls"}}}
	p.pods = []corev1.Pod{{Spec: corev1.PodSpec{
		Volumes: []corev1.Volume{volume},
		Containers: []corev1.Container{{
			Args: []string{"--webhook-cert-dir=/certs"}, VolumeMounts: []corev1.VolumeMount{{Name: "certs", MountPath: "/certs"}},
		}},
	}}}
	wantFindings(t, p.webhook(t.Context()), "with valid certificates", OK)
	p.pods[0].Spec.Volumes[0].Secret = nil
	wantFindings(t, p.webhook(t.Context()), "in directory /certs", Unknown)
}

// What could not be read might need one.
func TestWebhook_UnknownIfPoliciesAreUnreadable(t *testing.T) {
	p := checkerAt(t, nil)
	p.setup.Companion, p.modeKnown = true, true
	p.resources.Unread = []string{"GCPolicies: forbidden"}
	wantFindings(t, p.webhook(t.Context()), "can't be read", Unknown)
}

func TestWebhook_MissingForOverridingPolicies(t *testing.T) {
	p := checkerAt(t, nil)
	p.setup.Companion, p.modeKnown = true, true
	p.resources.Policies = []finalizers.Policy{{}}
	p.resources.Policies[0].Spec = v1alpha1.GCPolicySpec{
		Mode: v1alpha1.ModeEnforce, ExplicitPropagation: v1alpha1.ExplicitPropagationOverride, Fixed: &v1alpha1.FixedVerdicts{Propagate: &v1alpha1.FixedVerdict{}},
	}
	wantFindings(t, p.webhook(t.Context()), "ValidatingWebhookConfiguration gleaner-veto not found", Problem)
}

func TestWebhook_LeftoverOfCompanionIsWarning(t *testing.T) {
	p := checkerAt(t, vetoed(t))
	p.setup.Namespace, p.modeKnown = "g", true
	wantFindings(t, p.webhook(t.Context()), "is a leftover of companion mode", Warning)
}
