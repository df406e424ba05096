package source_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/gleaner-dev/gleaner/policies/source"
	"github.com/gleaner-dev/gleaner/policies/source/oci"
)

func TestImage_ByDigestIsPinnedAndByTagIsNot(t *testing.T) {
	server := registered(t)
	code := module("x")
	image := server.pushWasm(t, code)
	f := fetcher(t, t.TempDir(), source.Limits{})
	want := source.Fetched{
		Files: []source.File{{Name: "module.wasm", Data: code}}, Digest: sum(code), Pinned: true, Origin: image,
	}
	if diff := cmp.Diff(want, fetch(t, f, wasmImage(image))); diff != "" {
		t.Errorf("by digest: %s", diff)
	}
	byTag := server.host() + "/modules/a:v1"
	want.Pinned, want.Origin, want.Pin = false, byTag, "image: "+image
	if diff := cmp.Diff(want, fetch(t, f, wasmImage(byTag))); diff != "" {
		t.Errorf("by tag: %s", diff)
	}
	checked := wasmImage(byTag)
	checked.SHA256 = sum(code)
	if got := fetch(t, f, checked); !got.Pinned {
		t.Error("by tag, with a digest of the module: it is not pinned")
	}
	checked.SHA256 = sum(nil)
	refused(t, f, checked, source.DigestMismatch, sum(code))
	checked.Image = image
	refused(t, f, checked, source.DigestMismatch, sum(code))

	other := module("another")
	server.pushWasm(t, other)
	only(t, fetch(t, f, wasmImage(byTag)), other)
	only(t, fetch(t, f, wasmImage(image)), code)
}

func TestImage_IsPulledWithTheSecretThatIsForIt(t *testing.T) {
	server := guarded(t)
	code := module("x")
	a, err := oci.PackWasm(oci.File{Name: "a.wasm", Data: code})
	if err != nil {
		t.Fatal(err)
	}
	image := server.push(t, a, oci.Credential{Username: "me", Password: "secret"})
	good, bad := login(server.host(), "secret"), login(server.host(), "hunter2")
	for claim, secrets := range map[string][][]byte{
		"the only one":         {good},
		"one of several":       {login("other.example.com", "x"), good},
		"after one that fails": {bad, good},
	} {
		t.Run(claim, func(t *testing.T) {
			s := wasmImage(image)
			s.PullSecrets = secrets
			only(t, fetch(t, fetcher(t, t.TempDir(), source.Limits{}), s), code)
		})
	}
	for claim, c := range map[string]struct {
		secrets [][]byte
		reason  source.Reason
		says    string
	}{
		"none":            {nil, source.Unauthorized, "add a pull secret for " + server.host()},
		"another's":       {[][]byte{login("other.example.com", "secret")}, source.Unauthorized, "add a pull secret for"},
		"a wrong one":     {[][]byte{bad, bad}, source.Unauthorized, "are invalid, or lack permission to pull"},
		"a damaged one":   {[][]byte{good, []byte("hunter2")}, source.InvalidPullSecret, "pull secret 2 of 2"},
		"an empty secret": {[][]byte{nil}, source.InvalidPullSecret, "kubectl create secret docker-registry"},
	} {
		t.Run(claim, func(t *testing.T) {
			s := wasmImage(image)
			s.PullSecrets = c.secrets
			e := refused(t, fetcher(t, t.TempDir(), source.Limits{}), s, c.reason, c.says)
			if strings.Contains(e.Message, "hunter2") {
				t.Errorf("a secret is in the message: %s", e.Message)
			}
		})
	}
}

func TestImage_RejectsWrongDigest(t *testing.T) {
	honest := registry.New(registry.Logger(quiet()))
	var about atomic.Value // a part of a path
	about.Store("nothing")
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, about.Load().(string)) {
			_, _ = w.Write(module("evil"))
			return
		}
		honest.ServeHTTP(w, r)
	}))
	image := server.pushWasm(t, module("good"))
	for _, lie := range []string{"/manifests/", "/blobs/"} {
		about.Store(lie)
		folder := t.TempDir()
		e := refused(t, fetcher(t, folder, source.Limits{}), wasmImage(image), source.DigestMismatch, "returns wrong content")
		if !e.Temporary {
			t.Error("the registry will lie for ever")
		}
		about.Store("nothing")
		only(t, fetch(t, fetcher(t, folder, source.Limits{}), wasmImage(image)), module("good"))
	}
}

func TestImage_ReportsNotFound(t *testing.T) {
	server := registered(t)
	server.pushWasm(t, module("x"))
	f := fetcher(t, "", source.Limits{})
	refused(t, f, wasmImage(server.host()+"/modules/a:v2"), source.NotFound, "MANIFEST_UNKNOWN", "push it, or correct the name")
	refused(t, f, wasmImage(server.host()+"/modules/b:v1"), source.NotFound, "NAME_UNKNOWN")
	refused(t, f, wasmImage(server.host()+"/modules/a"), source.InvalidReference, "add @sha256:")
	refused(t, f, wasmImage("modules/a:v1"), source.InvalidReference, "start with the registry")
	s := wasmImage(server.host() + "/modules/a:v1")
	s.Private = false
	refused(t, f, s, source.AddressNotAllowed, "reaches public addresses only")
	refused(t, f, wasmImage("169.254.169.254/modules/a:v1"), source.AddressNotAllowed, "metadata")
}

func TestImage_IsFollowedToItsStorageWithoutCredentials(t *testing.T) {
	var seen atomic.Value
	storage := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Store(r.Header.Get("Authorization"))
		_, _ = w.Write(module("x"))
	}))
	behind := guarded(t)
	front := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _, known := r.BasicAuth()
		if known && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, sum(module("x"))) {
			http.Redirect(w, r, storage.URL+"/blob", http.StatusTemporaryRedirect)
			return
		}
		behind.Config.Handler.ServeHTTP(w, r)
	}))
	a, err := oci.PackWasm(oci.File{Name: "a.wasm", Data: module("x")})
	if err != nil {
		t.Fatal(err)
	}
	s := wasmImage(front.push(t, a, oci.Credential{Username: "me", Password: "secret"}))
	s.PullSecrets = [][]byte{login(front.host(), "secret")}
	only(t, fetch(t, fetcher(t, "", source.Limits{}), s), module("x"))
	if got := seen.Load(); got != "" {
		t.Errorf("the storage was told %q", got)
	}
}

func named(t *testing.T, size int, digest string) oci.Artifact {
	t.Helper()
	layer := map[string]any{"mediaType": "application/wasm", "digest": digest, "size": size}
	return oci.Artifact{Manifest: encoded(t, map[string]any{"layers": []any{layer}}), MediaType: "application/vnd.oci.image.manifest.v1+json"}
}

func bombs(t *testing.T, kind string) []string {
	t.Helper()
	var pairs []string
	for i := range 4 {
		pairs = append(pairs, kind, string(zipped(t, archive(t, string(rune('a'+i)), strings.Repeat("x", 90_000)))))
	}
	return pairs
}
