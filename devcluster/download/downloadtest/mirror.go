// Package downloadtest serves programs of a control plane as envtest's index and the release files of Kubernetes do.
package downloadtest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
)

// Mirror serves an index, archives and release files.
type Mirror struct {
	*httptest.Server
	Files map[string][]byte // by their paths
	Index strings.Builder   // the releases in it
}

// New starts a mirror without programs, until the test ends.
func New(t *testing.T) *Mirror {
	t.Helper()
	m := &Mirror{Files: map[string][]byte{}}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		file, ok := m.Files[r.URL.Path]
		if r.URL.Path == "/index.yaml" {
			file, ok = []byte("releases:\n"+m.Index.String()), true
		}
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(file)
	}))
	t.Cleanup(m.Close)
	return m
}

// IndexURL is the URL of the index.
func (m *Mirror) IndexURL() string { return m.URL + "/index.yaml" }

// ReleasesURL is the URL of the release files.
func (m *Mirror) ReleasesURL() string { return m.URL + "/release/" }

// Add adds a version with programs that say what they are.
func (m *Mirror) Add(t *testing.T, version string, programs ...string) {
	t.Helper()
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	files := tar.NewWriter(zipped)
	for _, name := range programs {
		text := name + " " + version
		if err := files.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "controller-tools/envtest/" + name, Mode: 0o755, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("envtest-%s-%s-%s.tar.gz", version, runtime.GOOS, runtime.GOARCH)
	sum := sha512.Sum512(archive.Bytes())
	m.Files["/"+name] = archive.Bytes()
	fmt.Fprintf(&m.Index, "  %s:\n    %s:\n      hash: %s\n      selfLink: %s/%s\n", version, name, hex.EncodeToString(sum[:]), m.URL, name)
	m.release(version, "kube-controller-manager"+" "+version)
}

func (m *Mirror) release(version, text string) {
	path := m.ReleasePath(version)
	sum := sha256.Sum256([]byte(text))
	m.Files[path], m.Files[path+".sha256"] = []byte(text), []byte(hex.EncodeToString(sum[:])+"\n")
}

// ReleasePath is the path of kube-controller-manager.
func (m *Mirror) ReleasePath(version string) string {
	return fmt.Sprintf("/release/%s/bin/%s/%s/%s", version, runtime.GOOS, runtime.GOARCH, "kube-controller-manager")
}
