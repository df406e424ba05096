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

	"github.com/gleaner-dev/gleaner/test/inprocess"
)

// expiredCertificate returns a certificate for a host that expired yesterday.
func expiredCertificate(t *testing.T) *tls.Certificate {
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

func TestUntrustedWebhook_KeepsGovernedObjectsOnly(t *testing.T) {
	o := newDedicatedEnv(t)
	o.stopOperator()
	broken := o.options()
	inprocess.SetCertificate(broken.Webhook, expiredCertificate(t))
	var err error
	if o.collector, o.stop, err = runCollector(broken); err != nil {
		t.Fatal(err)
	}
	p := o.applyPolicy(`
kind: GCPolicy
metadata: {name: waits}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Wait, after: 1h}}
  mode: Enforce`)
	owner := o.createConfigMap("owner")
	kept, ungoverned := o.createConfigMap("kept", owner), o.createObject("Secret", "ungoverned", nil, owner)
	o.delete(owner) // by another user: the webhook is not called
	o.waitForDeletion(owner, ungoverned)
	client := kubernetes.NewForConfigOrDie(o.config)
	o.eventually(func() error {
		text, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		if err == nil && !bytes.Contains(text, []byte(`error_type="calling_webhook_error"`)) {
			err = errorf("no webhook call has failed yet")
		}
		return err
	})
	o.expectKept(kept, "PolicyWaiting")
	o.forceDelete(p)
	o.waitForDeletion(kept)
}

func TestWebhook_IsCalledOnlyForSelectedObjects(t *testing.T) {
	o := newDedicatedEnv(t)
	cluster := o.applyPolicy(`
kind: ClusterGCPolicy
metadata: {name: labelled}
spec:
  resources: [{apiGroups: [apps], resources: [deployments]}]
  namespaceSelector: {matchLabels: {tier: data}}
  objectSelector: {matchLabels: {keep: "true"}}
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	o.applyPolicy(`
kind: GCPolicy
metadata: {name: passes}
spec:
  resources: [{apiGroups: [""], resources: [configmaps, secrets]}]
  fixed: {collect: {decision: Orphan}}
  onFault: Default
  mode: Enforce`)
	configurations := kubernetes.NewForConfigOrDie(o.config).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	type webhookScope struct {
		Failure    registrationv1.FailurePolicyType
		Namespaces metav1.LabelSelector
		Objects    metav1.LabelSelector
		Resources  []string
		Conditions []string
	}
	shown := func() (map[string]webhookScope, error) {
		c, err := configurations.Get(t.Context(), "gleaner-veto", metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		all := map[string]webhookScope{}
		for _, w := range c.Webhooks {
			if w.Name == "canary.veto.gleaner.dev" {
				continue // about Gleaner's own objects
			}
			a := webhookScope{Failure: *w.FailurePolicy, Namespaces: *w.NamespaceSelector, Objects: *w.ObjectSelector}
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
	passes := webhookScope{registrationv1.Ignore, metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{own, system}}, metav1.LabelSelector{},
		[]string{"configmaps", "secrets"}, byCollector}
	await := func(want map[string]webhookScope) {
		t.Helper()
		o.eventually(func() error {
			got, err := shown()
			if diff := cmp.Diff(want, got); err == nil && diff != "" {
				err = errorf("webhook calls (-want +got):\n%s", diff)
			}
			return err
		})
	}
	await(map[string]webhookScope{
		"deployments": {registrationv1.Fail, metav1.LabelSelector{MatchLabels: map[string]string{"tier": "data"}, MatchExpressions: []metav1.LabelSelectorRequirement{system}},
			metav1.LabelSelector{MatchLabels: map[string]string{"keep": "true"}}, []string{"deployments"}, byCollector},
		"configmaps": passes,
	})
	o.forceDelete(cluster)
	await(map[string]webhookScope{"configmaps": passes})
}
