package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/webhook"
)

// selfSigned returns a self-signed certificate for a host, and its key.
func selfSigned(t *testing.T, host string, until time.Time) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-time.Hour), NotAfter: until, DNSNames: []string{host}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

// newPoller returns a follower of a directory with the given files.
func newPoller(t *testing.T, files map[string][]byte) *poller {
	t.Helper()
	f := &poller{Certificates: &Certificates{
		options: Options{DNSName: "gleaner-webhook.gleaner-system.svc", Dir: t.TempDir(), Identity: &latest.Value[webhook.Identity]{}, Log: logr.Discard()},
		ready:   make(chan struct{}),
	}}
	f.writeFiles(t, files)
	return f
}

func (f *poller) writeFiles(t *testing.T, files map[string][]byte) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(f.options.Dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPoller_RejectsUntrustedCertificates(t *testing.T) {
	hour := time.Now().Add(time.Hour)
	good, key := selfSigned(t, "gleaner-webhook.gleaner-system.svc", hour)
	another, anothersKey := selfSigned(t, "another.gleaner-system.svc", hour)
	old, oldKey := selfSigned(t, "gleaner-webhook.gleaner-system.svc", time.Now().Add(-time.Hour))
	for want, files := range map[string]map[string][]byte{
		"provide tls.crt, tls.key and ca.crt":                      {"tls.crt": good, "tls.key": key},
		"ca.crt contains no PEM certificate":                       {"tls.crt": good, "tls.key": key, "ca.crt": nil},
		"tls.crt and tls.key: ":                                    {"tls.crt": good, "tls.key": anothersKey, "ca.crt": good},
		"must be valid for gleaner-webhook.gleaner-system.svc and": {"tls.crt": another, "tls.key": anothersKey, "ca.crt": another},
		"signed by ca.crt: x509: certificate signed":               {"tls.crt": good, "tls.key": key, "ca.crt": another},
		"has expired": {"tls.crt": old, "tls.key": oldKey, "ca.crt": old},
	} {
		t.Run(want, func(t *testing.T) {
			f := newPoller(t, files)
			f.reload()
			if _, err := f.Certificate(); err == nil || !strings.Contains(err.Error(), want) || f.CABundle() != nil {
				t.Errorf("error %v, CA bundle %q", err, f.CABundle())
			}
		})
	}
}

func TestPoller_KeepsTheValidCertificate(t *testing.T) {
	hour := time.Now().Add(time.Hour)
	first, firstKey := selfSigned(t, "gleaner-webhook.gleaner-system.svc", hour)
	second, secondKey := selfSigned(t, "gleaner-webhook.gleaner-system.svc", hour)
	f := newPoller(t, map[string][]byte{"tls.crt": first, "tls.key": firstKey, "ca.crt": first})
	signedBy := func(want []byte) {
		t.Helper()
		f.reload()
		if _, err := f.Certificate(); err != nil || string(f.CABundle()) != string(want) {
			t.Errorf("%v, signed by %q", err, f.CABundle())
		}
	}
	signedBy(first)
	<-f.Ready()
	f.writeFiles(t, map[string][]byte{"tls.crt": second}) // without its key
	signedBy(first)
	f.writeFiles(t, map[string][]byte{"tls.key": secondKey, "ca.crt": second})
	signedBy(second)
}

func TestPathSecret_AcceptsFormerSecrets(t *testing.T) {
	hour := time.Now().Add(time.Hour)
	var pairs []map[string][]byte
	for range maxFormerSecrets + 2 {
		certificate, key := selfSigned(t, "gleaner-webhook.gleaner-system.svc", hour)
		pairs = append(pairs, map[string][]byte{"tls.crt": certificate, "tls.key": key, "ca.crt": certificate})
	}
	f := newPoller(t, nil)
	if f.PathSecret() != "" || f.ValidSecret("") {
		t.Error("a secret exists without a certificate")
	}
	var secrets []string
	for _, files := range pairs {
		f.writeFiles(t, files)
		f.reload()
		secrets = append(secrets, f.PathSecret())
		another := newPoller(t, files)
		another.reload()
		if len(f.PathSecret()) != 32 || f.PathSecret() != another.PathSecret() {
			t.Errorf("one replica has the secret %q, another %q", f.PathSecret(), another.PathSecret())
		}
	}
	for i, s := range secrets {
		if is, want := f.ValidSecret(s), i > 0; is != want {
			t.Errorf("the secret of certificate %d is valid: %t", i, is)
		}
	}
	f.writeFiles(t, pairs[1])
	if f.reload(); f.PathSecret() != secrets[1] || f.ValidSecret("") || f.ValidSecret(secrets[1][:31]) {
		t.Errorf("of certificate 1 the secret is %q", f.PathSecret())
	}
}
