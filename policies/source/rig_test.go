package source_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/gleaner-dev/gleaner/policies/source"
	"github.com/gleaner-dev/gleaner/policies/source/egress"
	"github.com/gleaner-dev/gleaner/policies/source/oci"
)

const regoText = "package gleaner\n\ncollect := {\"decision\": \"Orphan\"}\n"

// module is WebAssembly by its looks, which is all that counts here.
func module(filling string) []byte { return []byte("\x00asm\x01\x00\x00\x00" + filling) }

func zipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// archive makes a tar of regular files, in pairs of name and content.
func archive(t testing.TB, pairs ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(pairs); i += 2 {
		if err := w.WriteHeader(&tar.Header{Name: pairs[i], Mode: 0o644, Size: int64(len(pairs[i+1]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, pairs[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// site is a server by TLS that counts what it is asked.
type site struct {
	*httptest.Server
	asked atomic.Int64
}

func serve(t testing.TB, h http.Handler) *site {
	t.Helper()
	s := &site{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		h.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = quiet() // of handshakes that are meant to go wrong
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// gives is a handler that gives the same to everybody.
func gives(data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data) }
}

// registered serves a registry.
func registered(t testing.TB) *site {
	t.Helper()
	return serve(t, registry.New(registry.Logger(quiet())))
}

// guarded serves a registry that knows "me", with the password "secret".
func guarded(t testing.TB) *site {
	t.Helper()
	behind := registry.New(registry.Logger(quiet()))
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, password, _ := r.BasicAuth(); name != "me" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="modules"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		behind.ServeHTTP(w, r)
	}))
}

func (s *site) host() string { return strings.TrimPrefix(s.URL, "https://") }

func (s *site) repository(t testing.TB, c oci.Credential) *oci.Repository {
	t.Helper()
	r, err := oci.ParseReference(s.host() + "/modules/a")
	if err != nil {
		t.Fatal(err)
	}
	return oci.NewRepository(s.Client(), r, c)
}

// push puts an artifact there under the tag v1, and returns its reference by digest.
func (s *site) push(t testing.TB, a oci.Artifact, c oci.Credential) string {
	t.Helper()
	digest, err := s.repository(t, c).Push(t.Context(), a, "v1")
	if err != nil {
		t.Fatal(err)
	}
	return s.host() + "/modules/a@" + digest
}

func (s *site) pushWasm(t testing.TB, code []byte) string {
	t.Helper()
	a, err := oci.PackWasm(oci.File{Name: "a.wasm", Data: code})
	if err != nil {
		t.Fatal(err)
	}
	return s.push(t, a, oci.Credential{})
}

// layers makes an artifact of layers, in pairs of media type and content.
func layers(t testing.TB, pairs ...string) oci.Artifact {
	t.Helper()
	a := oci.Artifact{MediaType: "application/vnd.oci.image.manifest.v1+json"}
	list := []map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		data := []byte(pairs[i+1])
		a.Blobs = append(a.Blobs, data)
		list = append(list, map[string]any{"mediaType": pairs[i], "digest": oci.Digest(data), "size": len(data)})
	}
	a.Manifest = encoded(t, map[string]any{"schemaVersion": 2, "mediaType": a.MediaType, "layers": list})
	return a
}

func encoded(t testing.TB, value any) []byte {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func login(registry, password string) []byte {
	return []byte(fmt.Sprintf(`{"auths": {%q: {"username": "me", "password": %q}}}`, registry, password))
}

// fetcher returns one that believes the test servers, which all have one
// certificate, and keeps what it fetches in the folder.
func fetcher(t testing.TB, folder string, limits source.Limits) *source.Fetcher {
	t.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	s.Close()
	f, err := source.New(source.Config{CacheDir: folder, Limits: limits, Network: egress.Config{CAs: certificate}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// fetch fetches what there is to be fetched.
func fetch(t testing.TB, f *source.Fetcher, s source.Source) source.Fetched {
	t.Helper()
	got, err := f.Fetch(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if got.CacheErr != nil {
		t.Fatal(got.CacheErr)
	}
	return got
}

// gets makes sure that a module can be fetched and is this. It may be called from
// any goroutine.
func gets(t testing.TB, f *source.Fetcher, s source.Source, want []byte) {
	t.Helper()
	got, err := f.Fetch(t.Context(), s)
	if err != nil {
		t.Error(err)
		return
	}
	only(t, got, want)
}

// refused makes sure that a source is refused for a reason, in words that say
// these.
func refused(t testing.TB, f *source.Fetcher, s source.Source, reason source.Reason, words ...string) source.Error {
	t.Helper()
	got, err := f.Fetch(t.Context(), s)
	e := new(source.Error)
	if !errors.As(err, &e) || e.Reason != reason {
		t.Fatalf("got %d files, %v; want %s", len(got.Files), err, reason)
	}
	for _, w := range words {
		if !strings.Contains(e.Message, w) {
			t.Errorf("no %q in %q", w, e.Message)
		}
	}
	return *e
}

// only makes sure that a module is one file with this content.
func only(t testing.TB, got source.Fetched, want []byte) {
	t.Helper()
	if len(got.Files) != 1 || !bytes.Equal(got.Files[0].Data, want) {
		t.Errorf("got %d files, want the one", len(got.Files))
	}
}

func wasmImage(image string) source.Source {
	return source.Source{Language: source.Wasm, Image: image, Private: true}
}

func wasmURL(at string) source.Source {
	return source.Source{Language: source.Wasm, URL: at, Private: true}
}

// every calls with each file below a folder.
func every(t testing.TB, folder string, do func(name string)) int {
	t.Helper()
	n := 0
	for _, inner := range entries(t, folder) {
		for _, name := range entries(t, inner) {
			do(name)
			n++
		}
	}
	return n
}

// age makes all that is kept look as if it had been used an hour ago.
func age(t testing.TB, folder string) {
	t.Helper()
	then := time.Now().Add(-time.Hour)
	every(t, folder, func(name string) {
		if err := os.Chtimes(name, then, then); err != nil {
			t.Fatal(err)
		}
	})
}

func entries(t testing.TB, folder string) []string {
	t.Helper()
	found, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range found {
		names = append(names, folder+"/"+e.Name())
	}
	return names
}
