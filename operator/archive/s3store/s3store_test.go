package s3store

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gleaner-dev/gleaner/devcluster/s3server"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/archivetest"
)

// bucketName is the bucket of the test that runs.
var bucketName = "none"

// server is a real S3 server, which this process is configured for.
type server struct {
	*s3server.Server
	env []string
}

// shared is the server of all tests.
var shared struct {
	server  *s3server.Server
	dir     string
	buckets int
}

// startServer starts the server if it does not run yet, and makes a bucket for a test.
func startServer(t testing.TB) server {
	t.Helper()
	if shared.server == nil {
		var err error
		if shared.dir, err = os.MkdirTemp("", "gleaner-s3store-"); err != nil { //nolint:usetesting // the server outlives the test
			t.Fatal(err)
		}
		if shared.server, err = s3server.Start(context.WithoutCancel(t.Context()), shared.dir, nil); err != nil {
			t.Fatal(err)
		}
	}
	s := shared.server
	ca := filepath.Join(shared.dir, "ca.pem")
	if err := os.WriteFile(ca, s.CA, 0o600); err != nil {
		t.Fatal(err)
	}
	shared.buckets++
	bucketName = fmt.Sprintf("archive-%d", shared.buckets)
	started := server{Server: s}
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_S3": s.URL, "AWS_REGION": s.Region, "AWS_CA_BUNDLE": ca,
		"AWS_ACCESS_KEY_ID": s.AccessKey, "AWS_SECRET_ACCESS_KEY": s.SecretKey,
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
		bucketVariable: bucketName,
	} {
		t.Setenv(name, value)
		started.env = append(started.env, name+"="+value)
	}
	started.request(t, http.MethodPut, "/"+bucketName, "")
	return started
}

func (s server) request(t testing.TB, method, path, body string) string {
	t.Helper()
	response, err := s.Request(t.Context(), method, path, body)
	if err != nil || response.Status >= 300 {
		t.Fatalf("%s %s: %d %s, %v", method, path, response.Status, response.Body, err)
	}
	return response.Body
}

func openStore(t testing.TB, prefix string) *Store {
	t.Helper()
	s, err := Open(t.Context(), bucketName, prefix, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func openReader(t testing.TB, prefix string) *Reader {
	t.Helper()
	r, err := OpenReadOnly(t.Context(), bucketName, prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// keys returns the objects below a prefix.
func keys(t testing.TB, prefix string) []object {
	t.Helper()
	b, err := openBucket(t.Context(), bucketName, prefix)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	found, err := b.list(t.Context(), folder, "")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestConformance(t *testing.T) {
	s := startServer(t)
	var places atomic.Int64
	archivetest.Run(t, func(*testing.T) archivetest.Place {
		prefix := strings.Repeat("p", int(places.Add(1))) + "/"
		return archivetest.Place{
			Location: prefix, Env: s.env,
			Open:    func(t *testing.T) archive.Store { return openStore(t, prefix) },
			Reader:  func(t *testing.T) archive.Reader { return openReader(t, prefix) },
			Corrupt: func(t *testing.T, stored []byte) { s.corrupt(t, prefix, stored) },
		}
	})
}

// corrupt flips a bit wherever the bytes are in a segment.
func (s server) corrupt(t *testing.T, prefix string, stored []byte) {
	t.Helper()
	found := false
	for _, o := range keys(t, prefix) {
		path := "/" + bucketName + "/" + prefix + o.key
		data := []byte(s.request(t, http.MethodGet, path, ""))
		at := bytes.Index(data, stored)
		if at < 0 {
			continue
		}
		data[at+len(stored)/2] ^= 4
		s.request(t, http.MethodPut, path, string(data))
		found = true
	}
	if !found {
		t.Fatal("not found in the bucket")
	}
}
