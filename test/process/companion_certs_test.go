package process

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// issueCertificate writes a certificate for localhost into a folder, with the file names of a cert-manager
// Secret, and returns its CA.
func issueCertificate(t *testing.T, folder string) (ca []byte) {
	t.Helper()
	sign := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if signer == nil {
			parent, signer = template, key
		}
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return certificate, key
	}
	authority, signer := sign(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "elsewhere"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	leaf, key := sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{"localhost"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, authority, signer)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Raw})
	for name, text := range map[string][]byte{
		"ca.crt": ca, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return ca
}

// waitForCA waits until the API server trusts certificates of a CA.
func (b *companionEnv) waitForCA(ca []byte) {
	b.Helper()
	devtest.Eventually(b, timeout, func() error {
		c, err := b.webhookConfiguration()
		if err == nil && !bytes.Equal(c.Webhooks[0].ClientConfig.CABundle, ca) {
			err = errors.New("API server trusts another certificate")
		}
		return err
	})
}

func TestCompanion_UsesAProvidedCertificate(t *testing.T) {
	b := newCompanionEnv(t)
	b.operator.stop()
	secrets := b.kube.CoreV1().Secrets("kube-system")
	if err := secrets.Delete(t.Context(), "gleaner-webhook", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	_, port, _ := strings.Cut(b.address, ":")
	b.operator = startOperator(t, b.cluster, "--collector=companion", "--canary-timeout=2s", "--webhook-bind-address="+b.address,
		"--webhook-url=https://localhost:"+port+"/veto", "--webhook-cert-dir="+folder)
	devtest.Eventually(t, timeout, func() error {
		response, err := http.Get(b.operator.probes + "/readyz/webhook")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode == http.StatusOK {
			t.Fatal("process is ready without a certificate")
		}
		if !strings.Contains(strings.Join(b.operator.process.Log.Lines(), "\n"), "provide tls.crt, tls.key and ca.crt") {
			return errors.New("no message about the missing files")
		}
		return nil
	})
	first := issueCertificate(t, folder)
	b.operator.waitUntilReady()
	b.applyKeepPolicy("Hold")
	b.waitForCA(first)
	b.waitForKept(b.createOrphan("first"))
	second := issueCertificate(t, folder)
	b.waitForCA(second)
	b.waitForKept(b.createOrphan("second"))
	if _, err := secrets.Get(t.Context(), "gleaner-webhook", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it created its own Secret: %v", err)
	}
}
