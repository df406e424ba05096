package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/whose"
	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// certificateFor makes one that is good for so long, or has been over since.
func certificateFor(t *testing.T, left time.Duration) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(left)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.Add(-365 * 24 * time.Hour), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

const day = 24 * time.Hour

func TestCertificatesAreToldBeforeTheyEnd(t *testing.T) {
	for claim, c := range map[string]struct {
		data  []byte
		words string
		want  Severity
	}{
		"it is over":         {certificateFor(t, -day), "it ended at", Problem},
		"it is soon over":    {certificateFor(t, 6*day), "it ends at", Warning},
		"there is none":      {nil, "it is no certificate", Problem},
		"it can't be read":   {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), "it can't be read", Problem},
		"it is text, no PEM": {[]byte("hello"), "it is no certificate", Problem},
	} {
		t.Run(claim, func(t *testing.T) { finds(t, ends("it", c.data), c.words, c.want) })
	}
	if found := ends("it", certificateFor(t, 8*day)); len(found) != 0 {
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
	good := certificateFor(t, 365*day)
	return served{
		vetoPath: admissionv1.ValidatingWebhookConfiguration{
			TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
			Webhooks: []admissionv1.ValidatingWebhook{{Name: "veto.gleaner.dev", ClientConfig: admissionv1.WebhookClientConfig{
				CABundle: good, Service: &admissionv1.ServiceReference{Namespace: "g", Name: "gleaner-webhook"},
			}}},
		},
		servicePath: corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}},
		slicesPath:  behind(nil, ptr.To(false), ptr.To(true)),
		secretPath:  secret(good),
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

func TestTheWebhookIsLookedAtAsTheOtherCollectorDependsOnIt(t *testing.T) {
	for claim, c := range map[string]struct {
		change func(served)
		words  string
		want   []Severity
	}{
		"all is well":               {func(served) {}, "its certificates are good", []Severity{OK}},
		"its Service is gone":       {func(s served) { delete(s, servicePath) }, "there is no Service g/gleaner-webhook", []Severity{Problem}},
		"nothing is behind it":      {func(s served) { s[slicesPath] = behind() }, "nothing is ready behind", []Severity{Problem}},
		"nothing behind it is well": {func(s served) { s[slicesPath] = behind(ptr.To(false)) }, "nothing is ready behind", []Severity{Problem}},
		"its certificate is gone":   {func(s served) { delete(s, secretPath) }, "there is no Secret g/gleaner-webhook", []Severity{Problem}},
		"its certificate ends soon": {func(s served) { s[secretPath] = secret(certificateFor(t, day)) }, "in Secret g/gleaner-webhook ends at", []Severity{Warning}},
		"there is none, nor a need": {func(s served) { delete(s, vetoPath) }, "none is needed", []Severity{OK}},
	} {
		t.Run(claim, func(t *testing.T) {
			answers := vetoed(t)
			c.change(answers)
			p := patientAt(t, answers)
			p.setup.Namespace, p.setup.Companion, p.mode = "g", true, true
			finds(t, p.webhook(t.Context()), c.words, c.want...)
		})
	}
}

func TestAWebhookThatPoliciesNeedIsMissed(t *testing.T) {
	p := patientAt(t, nil)
	p.setup.Companion = true
	p.book.Policies = []whose.Policy{{}}
	p.book.Policies[0].Spec.Mode = v1alpha1.ModeEnforce
	p.book.Policies[0].Spec.Fixed = &v1alpha1.FixedVerdicts{Collect: &v1alpha1.FixedVerdict{}}
	finds(t, p.webhook(t.Context()), "policies on what loses its owners are not carried out", Problem)
}

func TestAWebhookThatIsLeftFromACompanionIsTold(t *testing.T) {
	p := patientAt(t, vetoed(t))
	p.setup.Namespace, p.mode = "g", true
	finds(t, p.webhook(t.Context()), "is left from running as a companion", Warning)
}
