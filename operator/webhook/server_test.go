package webhook_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/webhook"
)

// Otherwise a client in the cluster that can reach the webhook could send forged objects
// that are then deleted, or a forged collector user.
func TestServer_RequiresTheSecret(t *testing.T) {
	certificate := newCertificate(t, "localhost")
	ready := make(chan struct{})
	close(ready)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	paths := make(chan string, 8)
	s := &webhook.Server{
		Address: address, Ready: ready, Log: logr.Discard(),
		Certificate: func() (*tls.Certificate, error) { return &certificate, nil },
		ValidSecret: func(secret string) bool { return secret == "secret" },
		Handler:     http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { paths <- r.URL.Path }),
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // loopback only
	post := func(path string) int {
		var response *http.Response
		devtest.Eventually(t, time.Minute, func() (err error) {
			response, err = client.Post("https://"+address+path, "application/json", nil)
			return err
		})
		defer response.Body.Close()
		return response.StatusCode
	}
	for _, path := range []string{"/veto", "//veto", "/", "/guessed/veto", "/veto/secret", "/secre/t/veto"} {
		if code := post(path); code != http.StatusNotFound {
			t.Errorf("POST %s: status %d", path, code)
		}
	}
	if code, path := post("/secret/place/holds"), <-paths; code != http.StatusOK || path != "/place/holds" || len(paths) != 0 {
		t.Errorf("status %d for %s, and %d other requests", code, path, len(paths))
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// newCertificate returns a self-signed certificate.
func newCertificate(t *testing.T, host string) tls.Certificate {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{host}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}
