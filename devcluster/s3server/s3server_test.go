package s3server_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/devcluster/s3server"
)

func start(t *testing.T) *s3server.Server {
	t.Helper()
	s, err := s3server.Start(t.Context(), t.TempDir(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// send sends a signed request, and sees the status.
func send(t *testing.T, s *s3server.Server, method, path, body string, status int) string {
	t.Helper()
	response, err := s.Request(t.Context(), method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	if response.Status != status {
		t.Fatalf("%s %s: %d, want %d: %s", method, path, response.Status, status, response.Body)
	}
	return response.Body
}

func TestABucketKeepsItsObjects(t *testing.T) {
	s := start(t)
	send(t, s, "PUT", "/shop", "", 200)
	send(t, s, "PUT", "/shop/a/b%20%26c", "text", 200)
	if got := send(t, s, "GET", "/shop/a/b%20%26c", "", 200); got != "text" {
		t.Errorf("read %q", got)
	}
	if list := send(t, s, "GET", "/shop?list-type=2", "", 200); !strings.Contains(list, "<Key>a/b &amp;c</Key>") {
		t.Errorf("listed %s", list)
	}
	send(t, s, "DELETE", "/shop", "", 409)
	send(t, s, "DELETE", "/shop/a/b%20%26c", "", 204)
	send(t, s, "DELETE", "/shop", "", 204)
	send(t, s, "GET", "/shop?list-type=2", "", 404)
}

func TestABucketCanKeepVersions(t *testing.T) {
	s := start(t)
	send(t, s, "PUT", "/shop", "", 200)
	send(t, s, "PUT", "/shop?versioning", "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>", 200)
	send(t, s, "PUT", "/shop/a", "one", 200)
	send(t, s, "PUT", "/shop/a", "two", 200)
	send(t, s, "DELETE", "/shop/a", "", 204)
	list := send(t, s, "GET", "/shop?versions", "", 200)
	if strings.Count(list, "<Version>") != 2 || strings.Count(list, "<DeleteMarker>") != 1 {
		t.Errorf("listed %s", list)
	}
	send(t, s, "DELETE", "/shop", "", 409)
}

func TestServer_RejectsUnsignedRequest(t *testing.T) {
	s := start(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.CA)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL+"/shop", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("answered %s", response.Status)
	}

	s.SecretKey += "0"
	send(t, s, "PUT", "/shop", "", http.StatusForbidden)
}

func TestClose_EndsServer(t *testing.T) {
	s := start(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if response, err := s.Request(t.Context(), "GET", "/", ""); err == nil {
		t.Errorf("answered %d", response.Status)
	}
}
