package oci_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/gleaner-dev/gleaner/policies/source/oci"
)

// serve runs a registry behind a gate that may answer in its place.
func serve(t *testing.T, gate func(w http.ResponseWriter, r *http.Request) (answered bool)) *httptest.Server {
	t.Helper()
	behind := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !gate(w, r) {
			behind.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func open(http.ResponseWriter, *http.Request) bool { return false }

func at(t *testing.T, s *httptest.Server) oci.Reference {
	t.Helper()
	return reference(t, strings.TrimPrefix(strings.TrimPrefix(s.URL, "https://"), "http://")+"/modules/a")
}

func packed(t *testing.T) oci.Artifact {
	t.Helper()
	a, err := oci.PackWasm(oci.File{Name: "a.wasm", Data: []byte("\x00asm\x01\x00\x00\x00")})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func push(t *testing.T, s *httptest.Server, c oci.Credential) (digest string, err error) {
	t.Helper()
	return oci.NewRepository(s.Client(), at(t, s), c).Push(t.Context(), packed(t), "v1")
}

func TestRepository_PullsWhatWasPushed(t *testing.T) {
	s := serve(t, open)
	digest, err := push(t, s, oci.Credential{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := push(t, s, oci.Credential{})
	if err != nil || again != digest {
		t.Errorf("the same became %s and %s, %v", digest, again, err)
	}
	r := oci.NewRepository(s.Client(), at(t, s), oci.Credential{})
	for _, name := range []string{"v1", digest} {
		data, got, err := r.Manifest(t.Context(), name, 10_000)
		if err != nil || got != digest || string(data) != string(packed(t).Manifest) {
			t.Errorf("%s: got %s, %v", name, got, err)
		}
	}
	for _, b := range packed(t).Blobs {
		got, err := r.Blob(t.Context(), oci.Digest(b), int64(len(b)))
		if err != nil || string(got) != string(b) {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

// tokens is a gate that asks for tokens as Docker Hub and others do, and gives
// them to those who show one of the credentials.
func tokens(server *string, exchanged *atomic.Int64) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/token" {
			exchanged.Add(1)
			_ = r.ParseForm() // a wrong form has no scope, and is refused below
			user, password, _ := r.BasicAuth()
			known := user == "me" && password == "secret" || r.Form.Get("refresh_token") == "identity"
			if !known || r.Form.Get("service") != "test, registry" {
				w.WriteHeader(http.StatusUnauthorized)
				return true
			}
			fmt.Fprintf(w, `{"access_token": %q}`, "token for "+r.Form.Get("scope"))
			return true
		}
		given := r.Header.Get("Authorization")
		if given == "Bearer as it is" || given == "Bearer token for repository:modules/a:pull,push" ||
			given == "Bearer token for repository:modules/a:pull" && r.Method == http.MethodGet {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+*server+`/token",service="test, registry",scope="repository:others:*"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
}

func TestRepository_ExchangesCredentialsForTokens(t *testing.T) {
	var server string
	var exchanged atomic.Int64
	s := serve(t, tokens(&server, &exchanged))
	server = s.URL
	digest, err := push(t, s, oci.Credential{Username: "me", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	if n := exchanged.Load(); n != 1 {
		t.Errorf("%d tokens were needed for one push", n)
	}
	for name, c := range map[string]oci.Credential{
		"a password":                 {Username: "me", Password: "secret"},
		"an identity token":          {IdentityToken: "identity"},
		"a token that is sent as is": {RegistryToken: "as it is"},
	} {
		if _, _, err := oci.NewRepository(s.Client(), at(t, s), c).Manifest(t.Context(), digest, 10_000); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]oci.Credential{
		"nobody":                       {},
		"somebody else":                {Username: "you", Password: "secret"},
		"an identity token of another": {IdentityToken: "x"},
		"a wrong token":                {RegistryToken: "x"},
	} {
		_, _, err := oci.NewRepository(s.Client(), at(t, s), c).Manifest(t.Context(), digest, 10_000)
		status := new(oci.StatusError)
		if !errors.As(err, &status) || status.Status != http.StatusUnauthorized {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRepository_SendsNoCredentialByHTTP(t *testing.T) {
	var asked atomic.Int64
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(plain.Close)
	s := serve(t, tokens(&plain.URL, new(atomic.Int64)))
	_, err := push(t, s, oci.Credential{Username: "me", Password: "secret"})
	malformed := new(oci.MalformedError)
	if !errors.As(err, &malformed) || asked.Load() != 0 {
		t.Errorf("got %v, and the server was asked %d times", err, asked.Load())
	}
}

// Some registries offer both, each in a header of its own.
func TestRepository_PrefersTokenToPassword(t *testing.T) {
	var s *httptest.Server
	s = serve(t, func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Path == "/token":
			_, _ = io.WriteString(w, `{"token": "t"}`)
			return true
		case r.Header.Get("Authorization") == "Bearer t":
			return false
		}
		w.Header().Add("WWW-Authenticate", `Basic realm="test"`)
		w.Header().Add("WWW-Authenticate", `Bearer realm="`+s.URL+`/token"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	if _, err := push(t, s, oci.Credential{Username: "me", Password: "secret"}); err != nil {
		t.Error(err)
	}
}

// redirected has a registry redirect everything to another server, which asks for
// credentials.
func redirected(t *testing.T, challenge func(other string) string) (registry *httptest.Server, asked *atomic.Value) {
	t.Helper()
	asked = new(atomic.Value)
	var other *httptest.Server
	other = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what arrived is what counts
		if r.URL.Path == "/token" {
			asked.Store(r.Header.Get("Authorization") + string(body))
		}
		w.Header().Set("WWW-Authenticate", challenge(other.URL))
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(other.Close)
	return serve(t, func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
		return true
	}), asked
}

func TestRepository_IgnoresChallengeOfAnotherServer(t *testing.T) {
	s, asked := redirected(t, func(other string) string { return `Bearer realm="` + other + `/token"` })
	for name, c := range map[string]oci.Credential{
		"a password":        {Username: "me", Password: "secret"},
		"an identity token": {IdentityToken: "secret"},
	} {
		_, _, err := oci.NewRepository(s.Client(), at(t, s), c).Manifest(t.Context(), "v1", 100)
		status := new(oci.StatusError)
		if !errors.As(err, &status) || status.Status != http.StatusUnauthorized || asked.Load() != nil {
			t.Errorf("%s: got %v, and the server to which it redirects was sent %v", name, err, asked.Load())
		}
	}
}

func TestRepository_SendsNoIdentityTokenToAnotherServer(t *testing.T) {
	elsewhere, asked := redirected(t, func(string) string { return "" })
	s := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+elsewhere.URL+`/token"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	_, _, err := oci.NewRepository(s.Client(), at(t, s), oci.Credential{IdentityToken: "secret"}).Manifest(t.Context(), "v1", 100)
	status := new(oci.StatusError)
	if !errors.As(err, &status) || status.Status != http.StatusTemporaryRedirect || asked.Load() != nil {
		t.Errorf("got %v, and the server to which the token server redirects was sent %v", err, asked.Load())
	}
}

func TestRepository_OnThisMachineMayHaveNoTLS(t *testing.T) {
	behind := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(behind)
	t.Cleanup(s.Close)
	if _, err := push(t, s, oci.Credential{}); err != nil {
		t.Error(err)
	}
}

func TestRepository_RejectsWrongDigest(t *testing.T) {
	var lie atomic.Pointer[string] // set once the digest is known
	var digest string
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) bool {
		body := lie.Load()
		if body == nil {
			return false
		}
		w.Header().Set("Docker-Content-Digest", digest)
		_, _ = io.WriteString(w, *body)
		return true
	})
	var err error
	if digest, err = push(t, s, oci.Credential{}); err != nil {
		t.Fatal(err)
	}
	blob := packed(t).Blobs[1]
	r := oci.NewRepository(s.Client(), at(t, s), oci.Credential{})
	for name, c := range map[string]string{
		"other bytes":    strings.Repeat("x", len(blob)),
		"fewer bytes":    "x",
		"more bytes":     strings.Repeat("x", len(blob)+1),
		"a flood":        strings.Repeat("x", 1<<20),
		"no byte at all": "",
	} {
		lie.Store(&c)
		for what, ask := range map[string]func() error{
			"manifest": func() error { _, _, err := r.Manifest(t.Context(), digest, 2<<20); return err },
			"blob":     func() error { _, err := r.Blob(t.Context(), oci.Digest(blob), int64(len(blob))); return err },
		} {
			wrong, tooLarge := new(oci.DigestError), new(oci.SizeError)
			if err := ask(); !errors.As(err, &wrong) && !errors.As(err, &tooLarge) {
				t.Errorf("%s, %s: %v", what, name, err)
			}
		}
	}
}

func TestRepository_ShowsLittleOfWhatARegistrySays(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"errors": [{"code": "DENIED", "message": "no\u001b[31m`+strings.Repeat("x", 5000)+`"}]}`)
		return true
	})
	_, _, err := oci.NewRepository(s.Client(), at(t, s), oci.Credential{}).Manifest(t.Context(), "v1", 100)
	if err == nil || !strings.Contains(err.Error(), "DENIED: no [31mxxx") || len(err.Error()) > 500 {
		t.Errorf("got %v", err)
	}
}

func TestPush_GoesWhereTheRegistrySays(t *testing.T) {
	var with atomic.Value
	var storage *httptest.Server
	s := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
		if user, _, _ := r.BasicAuth(); user != "me" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		if r.Method != http.MethodPost {
			return false
		}
		w.Header().Set("Location", storage.URL+"/put?signature=s")
		w.WriteHeader(http.StatusAccepted)
		return true
	})
	storage = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		with.Store(r.URL.Query().Get("signature") + " " + r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(storage.Close)
	if _, err := push(t, s, oci.Credential{Username: "me", Password: "secret"}); err != nil {
		t.Fatal(err)
	}
	if got := with.Load(); got != "s " {
		t.Errorf("the storage got %q, want the signature and no credential", got)
	}
}

func FuzzChallenge(f *testing.F) {
	for _, s := range []string{`Bearer realm="https://a/b",service=c`, `Basic`, `Bearer a="b\"c",`, `=`, `Bearer ===,,,"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		s := httptest.NewRecorder()
		s.Header().Set("WWW-Authenticate", header)
		client := &http.Client{Transport: answer(func(*http.Request) (*http.Response, error) {
			r := s.Result()
			r.StatusCode = http.StatusUnauthorized
			return r, nil
		})}
		r := oci.Reference{Registry: "registry.example.com", Repository: "a"}
		_, _, err := oci.NewRepository(client, r, oci.Credential{Username: "me", Password: "secret"}).Manifest(t.Context(), "v1", 100)
		if err == nil {
			t.Errorf("%q gave a manifest", header)
		}
	})
}

type answer func(*http.Request) (*http.Response, error)

func (a answer) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }
