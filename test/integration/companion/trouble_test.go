package policies

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// expired is a certificate of yesterday, for a host.
func expired(t *testing.T) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(-24 * time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestWhileTheWebhookIsNotBelievedWhatAPolicyKeepsStaysAndOtherDeletesGoOn(t *testing.T) {
	o := newOperation(t)
	o.end()
	broken := o.options()
	certificates.Store(*broken.Veto.Client.URL, expired(t))
	var err error
	if o.collector, o.stop, err = run(broken); err != nil {
		t.Fatal(err)
	}
	p := o.policy(`
kind: GCPolicy
metadata: {name: waits}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Wait, after: 1h}}
  mode: Enforce`)
	owner := o.make("owner")
	kept, ungoverned := o.make("kept", owner), o.object("Secret", "ungoverned", nil, owner)
	o.delete(owner) // by somebody else: nobody is asked about that
	o.goes(owner, ungoverned)
	client := kubernetes.NewForConfigOrDie(o.config)
	o.eventually(func() error {
		text, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		if err == nil && !bytes.Contains(text, []byte(`error_type="calling_webhook_error"`)) {
			err = errorf("no call of the webhook has failed yet")
		}
		return err
	})
	o.stays(kept, "WaitsByPolicy")
	o.remove(p)
	o.goes(kept)
}

func TestTheWebhookIsAskedAboutNothingButWhatPoliciesSelect(t *testing.T) {
	o := newOperation(t)
	cluster := o.policy(`
kind: ClusterGCPolicy
metadata: {name: labelled}
spec:
  resources: [{apiGroups: [apps], resources: [deployments]}]
  namespaceSelector: {matchLabels: {tier: data}}
  objectSelector: {matchLabels: {keep: "true"}}
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	o.policy(`
kind: GCPolicy
metadata: {name: passes}
spec:
  resources: [{apiGroups: [""], resources: [configmaps, secrets]}]
  fixed: {collect: {decision: Orphan}}
  onFault: Default
  mode: Enforce`)
	configurations := kubernetes.NewForConfigOrDie(o.config).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	type asked struct {
		Failure    registrationv1.FailurePolicyType
		Namespaces metav1.LabelSelector
		Objects    metav1.LabelSelector
		Resources  []string
		Conditions []string
	}
	shown := func() (map[string]asked, error) {
		c, err := configurations.Get(t.Context(), "gleaner-veto", metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		all := map[string]asked{}
		for _, w := range c.Webhooks {
			if w.Name == "canary.veto.gleaner.dev" {
				continue // it is about objects of our own
			}
			a := asked{Failure: *w.FailurePolicy, Namespaces: *w.NamespaceSelector, Objects: *w.ObjectSelector}
			for _, r := range w.Rules {
				a.Resources = append(a.Resources, r.Resources...)
			}
			for _, m := range w.MatchConditions {
				a.Conditions = append(a.Conditions, m.Expression)
			}
			all[a.Resources[0]] = a
		}
		return all, nil
	}
	byCollector := []string{`request.userInfo.username == "` + collectorUser + `"`}
	system := metav1.LabelSelectorRequirement{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system"}}
	own := metav1.LabelSelectorRequirement{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{o.ns}}
	passes := asked{registrationv1.Ignore, metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{own, system}}, metav1.LabelSelector{},
		[]string{"configmaps", "secrets"}, byCollector}
	await := func(want map[string]asked) {
		t.Helper()
		o.eventually(func() error {
			got, err := shown()
			if diff := cmp.Diff(want, got); err == nil && diff != "" {
				err = errorf("the webhook is asked about (-want +got):\n%s", diff)
			}
			return err
		})
	}
	await(map[string]asked{
		"deployments": {registrationv1.Fail, metav1.LabelSelector{MatchLabels: map[string]string{"tier": "data"}, MatchExpressions: []metav1.LabelSelectorRequirement{system}},
			metav1.LabelSelector{MatchLabels: map[string]string{"keep": "true"}}, []string{"deployments"}, byCollector},
		"configmaps": passes,
	})
	o.remove(cluster)
	await(map[string]asked{"configmaps": passes})
}
