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
)

// signed is a certificate for a host that is signed by itself, with its key.
func signed(t *testing.T, host string, until time.Time) (certificate, key []byte) {
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

// follow returns a follower of a folder with these files.
func follow(t *testing.T, files map[string][]byte) *follower {
	t.Helper()
	f := &follower{Certificates: &Certificates{
		options: Options{Host: "gleaner-webhook.gleaner-system.svc", Folder: t.TempDir(), OnChange: func() {}, Log: logr.Discard()},
		ready:   make(chan struct{}),
	}}
	f.put(t, files)
	return f
}

func (f *follower) put(t *testing.T, files map[string][]byte) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(f.options.Folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestACertificateThatTheAPIServerWouldNotBelieveIsNotTaken(t *testing.T) {
	hour := time.Now().Add(time.Hour)
	good, key := signed(t, "gleaner-webhook.gleaner-system.svc", hour)
	another, anothersKey := signed(t, "another.gleaner-system.svc", hour)
	old, oldKey := signed(t, "gleaner-webhook.gleaner-system.svc", time.Now().Add(-time.Hour))
	for says, files := range map[string]map[string][]byte{
		"put tls.crt, tls.key and ca.crt there":                 {"tls.crt": good, "tls.key": key},
		"ca.crt has no certificate in PEM":                      {"tls.crt": good, "tls.key": key, "ca.crt": nil},
		"tls.crt and tls.key: ":                                 {"tls.crt": good, "tls.key": anothersKey, "ca.crt": good},
		"is to be for gleaner-webhook.gleaner-system.svc and":   {"tls.crt": another, "tls.key": anothersKey, "ca.crt": another},
		"signed by what is in ca.crt: x509: certificate signed": {"tls.crt": good, "tls.key": key, "ca.crt": another},
		"has expired": {"tls.crt": old, "tls.key": oldKey, "ca.crt": old},
	} {
		t.Run(says, func(t *testing.T) {
			f := follow(t, files)
			f.look()
			if _, err := f.Certificate(); err == nil || !strings.Contains(err.Error(), says) || f.Authority() != nil {
				t.Errorf("it says %v, and is signed by %q", err, f.Authority())
			}
		})
	}
}

func TestABadCertificateLeavesTheGoodOneInPlaceUntilThereIsABetter(t *testing.T) {
	hour := time.Now().Add(time.Hour)
	first, firstKey := signed(t, "gleaner-webhook.gleaner-system.svc", hour)
	second, secondKey := signed(t, "gleaner-webhook.gleaner-system.svc", hour)
	f := follow(t, map[string][]byte{"tls.crt": first, "tls.key": firstKey, "ca.crt": first})
	signedBy := func(want []byte) {
		t.Helper()
		f.look()
		if _, err := f.Certificate(); err != nil || string(f.Authority()) != string(want) {
			t.Errorf("%v, signed by %q", err, f.Authority())
		}
	}
	signedBy(first)
	<-f.Ready()
	f.put(t, map[string][]byte{"tls.crt": second}) // half of it
	signedBy(first)
	f.put(t, map[string][]byte{"tls.key": secondKey, "ca.crt": second})
	signedBy(second)
}

func TestTheSecretIsThatOfTheCertificateAndTheFormerOnesCountForAWhile(t *testing.T) {
	hour := time.Now().Add(time.Hour)
	var pairs []map[string][]byte
	for range mostSecrets + 2 {
		certificate, key := signed(t, "gleaner-webhook.gleaner-system.svc", hour)
		pairs = append(pairs, map[string][]byte{"tls.crt": certificate, "tls.key": key, "ca.crt": certificate})
	}
	f := follow(t, nil)
	if f.Secret() != "" || f.Knows("") {
		t.Error("without a certificate there is a secret")
	}
	var secrets []string
	for _, files := range pairs {
		f.put(t, files)
		f.look()
		secrets = append(secrets, f.Secret())
		another := follow(t, files)
		another.look()
		if len(f.Secret()) != 32 || f.Secret() != another.Secret() {
			t.Errorf("one replica has the secret %q, another %q", f.Secret(), another.Secret())
		}
	}
	for i, s := range secrets {
		if is, want := f.Knows(s), i > 0; is != want {
			t.Errorf("the secret of certificate %d counts: %t", i, is)
		}
	}
	f.put(t, pairs[1])
	if f.look(); f.Secret() != secrets[1] || f.Knows("") || f.Knows(secrets[1][:31]) {
		t.Errorf("of certificate 1 the secret is %q", f.Secret())
	}
}
