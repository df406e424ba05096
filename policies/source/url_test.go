package source_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/policies/source"
)

func TestURL_GivesAModulePlainOrCompressed(t *testing.T) {
	code := module("x")
	f := fetcher(t, "", source.Limits{})
	for name, data := range map[string][]byte{"plain": code, "gzip": zipped(t, code)} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, gives(data))
			got := fetch(t, f, wasmURL(server.URL+"/a.wasm?signature=secret"))
			want := source.Fetched{
				Files:  []source.File{{Name: "module.wasm", Data: code}},
				Digest: sum(code), Pin: "sha256: " + sum(code), Origin: server.URL + "/a.wasm",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestURL_WithADigestOutlivesItsServer(t *testing.T) {
	code := module("x")
	server := serve(t, gives(zipped(t, code)))
	pinned := wasmURL(server.URL)
	pinned.SHA256 = sum(code)
	folder := t.TempDir()
	first := fetch(t, fetcher(t, folder, source.Limits{}), pinned)
	server.Close()
	second := fetch(t, fetcher(t, folder, source.Limits{}), pinned)
	if diff := cmp.Diff(first, second); diff != "" || !second.Pinned {
		t.Errorf("pinned: %t\n%s", second.Pinned, diff)
	}
	e := refused(t, fetcher(t, folder, source.Limits{}), wasmURL(server.URL+"?signature=secret"), source.Unreachable, server.URL)
	if !e.Temporary {
		t.Error("a server that is away will not come back")
	}
	if strings.Contains(e.Message, "secret") {
		t.Errorf("the signature is in the message: %s", e.Message)
	}
	elsewhere := pinned
	elsewhere.Namespace = "tenant"
	refused(t, fetcher(t, folder, source.Limits{}), elsewhere, source.Unreachable)
}

func TestURL_RejectsWrongDigest(t *testing.T) {
	server := serve(t, gives(module("other")))
	s := wasmURL(server.URL)
	s.SHA256 = sum(module("x"))
	refused(t, fetcher(t, t.TempDir(), source.Limits{}), s, source.DigestMismatch, sum(module("other")), s.SHA256, "correct the sha256")
}

func TestURL_SaysWhatIsWrong(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/page", gives([]byte("<html>")))
	mux.Handle("/private", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	mux.Handle("/broken", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	mux.Handle("/plain", http.RedirectHandler("http://127.0.0.1:1/", http.StatusFound))
	mux.Handle("/round", http.RedirectHandler("/round", http.StatusFound))
	mux.Handle("/metadata", http.RedirectHandler("https://169.254.169.254/", http.StatusFound))
	mux.Handle("/large", gives(make([]byte, 5000)))
	mux.Handle("/bomb", gives(zipped(t, make([]byte, 1<<20))))
	mux.Handle("/cut", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("x"))
	}))
	server := serve(t, mux)
	f := fetcher(t, "", source.Limits{Download: 4000, Module: 10_000})
	for path, c := range map[string]struct {
		reason    source.Reason
		temporary bool
		says      string
	}{
		"/page":     {source.InvalidArtifact, false, "begins with \"<html>\""},
		"/nowhere":  {source.NotFound, false, "404 Not Found"},
		"/private":  {source.Unauthorized, false, "403 Forbidden"},
		"/broken":   {source.Unreachable, true, "502 Bad Gateway"},
		"/plain":    {source.AddressNotAllowed, false, "does not use HTTPS"},
		"/round":    {source.AddressNotAllowed, false, "more than 5 redirects"},
		"/metadata": {source.AddressNotAllowed, false, "metadata"},
		"/large":    {source.TooLarge, false, "limit of 4000 bytes"},
		"/bomb":     {source.TooLarge, false, "limit of 10000 bytes, decompressed"},
		"/cut":      {source.Unreachable, true, "unexpected EOF"},
	} {
		t.Run(path, func(t *testing.T) {
			e := refused(t, f, wasmURL(server.URL+path+"?signature=secret"), c.reason, c.says, server.URL+path)
			if e.Temporary != c.temporary {
				t.Errorf("to try again: %t", e.Temporary)
			}
			if strings.Contains(e.Message, "secret") {
				t.Errorf("the signature is in the message: %s", e.Message)
			}
		})
	}
	for at, says := range map[string]string{
		"http://127.0.0.1/a":        "does not use HTTPS",
		"file:///etc/passwd":        "does not use HTTPS",
		"https://":                  "does not use HTTPS",
		"https://me:hunter2@host/a": "use a registry with a pull secret",
		"https://host:port/":        "is invalid",
	} {
		if e := refused(t, f, wasmURL(at), source.InvalidReference, says); strings.Contains(e.Message, "hunter2") {
			t.Errorf("the password is in the message: %s", e.Message)
		}
	}
}

func TestURL_OfANamespaceReachesNoPrivateAddress(t *testing.T) {
	server := serve(t, gives(module("x")))
	s := wasmURL(server.URL)
	s.Private = false
	refused(t, fetcher(t, "", source.Limits{}), s, source.AddressNotAllowed, "127.0.0.1", "reaches public addresses only")
	if n := server.asked.Load(); n != 0 {
		t.Errorf("the server was asked %d times", n)
	}
}

func TestURL_RejectsUntrustedCertificate(t *testing.T) {
	server := serve(t, gives(module("x")))
	f, err := source.New(source.Config{})
	if err != nil {
		t.Fatal(err)
	}
	refused(t, f, wasmURL(server.URL), source.TLSError, "certificate")
	plain := httptest.NewServer(gives(module("x")))
	t.Cleanup(plain.Close)
	refused(t, f, wasmURL(strings.Replace(plain.URL, "http:", "https:", 1)), source.TLSError, "does not support HTTPS")
}

func TestURL_LimitsSize(t *testing.T) {
	endless := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		chunk := make([]byte, 32<<10)
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	refused(t, fetcher(t, "", source.Limits{Download: 1 << 20}), wasmURL(endless.URL), source.TooLarge, "limit of 1048576 bytes")
}

// silent is a handler that says it was asked, begins to answer, and never goes on.
func silent(asked chan<- struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		asked <- struct{}{}
		<-r.Context().Done()
	}
}

func TestURL_TimesOut(t *testing.T) {
	server := serve(t, silent(make(chan struct{}, 1)))
	e := refused(t, fetcher(t, "", source.Limits{Timeout: 50 * time.Millisecond}), wasmURL(server.URL), source.Unreachable, "timeout")
	if !e.Temporary {
		t.Error("it is said not to help to try again")
	}
}

func TestFetch_IsCanceledByLastCaller(t *testing.T) {
	asked := make(chan struct{}, 1)
	server := serve(t, silent(asked))
	f := fetcher(t, "", source.Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := f.Fetch(ctx, wasmURL(server.URL))
		done <- err
	}()
	<-asked
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// waitUntil waits until so many wait for fetches.
func waitUntil(t *testing.T, f *source.Fetcher, n int) {
	t.Helper()
	devtest.Eventually(t, time.Minute, func() error {
		if got := source.Waiting(f); got != n {
			return fmt.Errorf("%d wait, want %d", got, n)
		}
		return nil
	})
}

func TestFetch_ContinuesForRemainingCallers(t *testing.T) {
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		<-answer
		_, _ = w.Write(module("x"))
	}))
	f := fetcher(t, "", source.Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	var leaver, stayer sync.WaitGroup
	leaver.Go(func() {
		if _, err := f.Fetch(ctx, wasmURL(server.URL)); !errors.Is(err, context.Canceled) {
			t.Errorf("who left got %v", err)
		}
	})
	<-asked
	stayer.Go(func() { gets(t, f, wasmURL(server.URL), module("x")) })
	waitUntil(t, f, 2)
	cancel()
	leaver.Wait()
	close(answer)
	stayer.Wait()
	if n := server.asked.Load(); n != 1 {
		t.Errorf("the server was asked %d times", n)
	}
}

func TestFetch_SharesDownload(t *testing.T) {
	const many = 50
	answer := make(chan struct{})
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-answer
		_, _ = w.Write(module("x"))
	}))
	f := fetcher(t, "", source.Limits{})
	var all sync.WaitGroup
	for range many {
		all.Go(func() { gets(t, f, wasmURL(server.URL), module("x")) })
	}
	waitUntil(t, f, many)
	close(answer)
	all.Wait()
	if n := server.asked.Load(); n != 1 {
		t.Errorf("the server was asked %d times", n)
	}
	only(t, fetch(t, f, wasmURL(server.URL)), module("x"))
	if n := server.asked.Load(); n != 2 {
		t.Errorf("who asked later was answered by a download of before; the server was asked %d times", n)
	}
}

func TestFetch_DoesNotShareAcrossCredentials(t *testing.T) {
	server := serve(t, gives(module("x")))
	f := fetcher(t, "", source.Limits{})
	var all sync.WaitGroup
	all.Go(func() { gets(t, f, wasmURL(server.URL), module("x")) })
	all.Go(func() {
		s := wasmURL(server.URL)
		s.Private = false
		e := new(source.Error)
		if _, err := f.Fetch(t.Context(), s); !errors.As(err, &e) || e.Reason != source.AddressNotAllowed {
			t.Errorf("got %v", err)
		}
	})
	all.Wait()
}

func TestNew_RejectsInvalidConfig(t *testing.T) {
	if _, err := source.New(source.Config{Limits: source.Limits{Files: -1}}); err == nil || !strings.Contains(err.Error(), "limit Files") {
		t.Errorf("got %v", err)
	}
}

func TestFetch_SucceedsWithoutCache(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	server := serve(t, gives(module("x")))
	s := wasmURL(server.URL)
	s.SHA256 = sum(module("x"))
	got, err := fetcher(t, file, source.Limits{}).Fetch(t.Context(), s)
	if err != nil || got.CacheErr == nil {
		t.Fatalf("got %v, and of the cache %v", err, got.CacheErr)
	}
	only(t, got, module("x"))
}
