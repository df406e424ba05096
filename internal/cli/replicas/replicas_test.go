package replicas

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/operator/debug"
	"github.com/gleaner-dev/gleaner/operator/record"
)

var at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// replicaAt is one that is asked by a URL.
func replicaAt(t *testing.T, w Options) *Replica {
	t.Helper()
	all, err := Find(t.Context(), w)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d replicas: %v", len(all), err)
	}
	t.Cleanup(func() { Close(all) })
	return all[0]
}

// replicaAnswering is a replica that gives one answer to all.
func replicaAnswering(t *testing.T, code int, answer any) *Replica {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return replicaAt(t, Options{Config: &rest.Config{}, Endpoint: server.URL})
}

func entry(name string, after time.Duration) record.Entry {
	o := record.Object{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: name, UID: "uid"}
	return record.Entry{Time: at.Add(after), Object: o}
}

func TestQueryRecords_MergesReplicas(t *testing.T) {
	early, late := at.Add(-time.Hour), at.Add(-time.Minute)
	first := replicaAnswering(t, http.StatusOK, debug.RecordList{Since: &early, Items: []record.Entry{entry("web", 1), entry("web", 3)}})
	second := replicaAnswering(t, http.StatusOK, debug.RecordList{Since: &late, Items: []record.Entry{entry("web", 2), entry("other", 2)}})
	away := replicaAnswering(t, http.StatusInternalServerError, "it burns")
	found := QueryRecords(t.Context(), []*Replica{first, away, second}, about("apps", "Deployment", "shop", "web"))
	want := Records{
		Entries:     []record.Entry{entry("web", 1), entry("web", 2), entry("web", 3)},
		Since:       &late, // before that the second may have done what it has forgotten
		Queried:     []string{first.Name, second.Name},
		Unreachable: []Unreachable{{away.Name, `unexpected status 500: "it burns"`}},
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An older operator answers with more than it was asked for.

// about selects an object by name.
func about(group, kind, namespace, name string) Selection {
	return Selection{Query: record.Query{Object: record.ObjectQuery{Group: &group, Kind: kind, Namespace: &namespace, Name: name}}}
}

func TestGet_ErrorsSayWhatToDo(t *testing.T) {
	for want, r := range map[string]*Replica{
		"set --token, or --token-of NAMESPACE/SERVICEACCOUNT": replicaAnswering(t, http.StatusUnauthorized, ""),
		"the ClusterRole gleaner-debug-reader grants this":    replicaAnswering(t, http.StatusForbidden, "no"),
		`unexpected status 404: "no such page"`:               replicaAnswering(t, http.StatusNotFound, "no such page"),
		"check that the address is Gleaner's":                 replicaAnswering(t, http.StatusOK, "welcome"),
	} {
		var status debug.Status
		if err := r.Get(t.Context(), "/debug/gc/status", &status); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %q: %v", want, err)
		}
		if h := QueryHealth(t.Context(), []*Replica{r})[0]; h.Err == nil {
			t.Errorf("it is well, though: %s", want)
		}
	}
}

// What is asked with is a secret, and plain HTTP is for an operator that does not ask
// for it.
func TestToken_IsSentOverHTTPSOnly(t *testing.T) {
	seen := make(chan string, 1)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("Authorization")
		_ = json.NewEncoder(w).Encode(debug.Status{})
	})
	plain, encrypted := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer encrypted.Close()
	for url, want := range map[string]string{plain.URL: "", encrypted.URL: "Bearer secret"} {
		r := replicaAt(t, Options{Config: &rest.Config{Host: "https://127.0.0.1:1", BearerToken: "secret"}, Endpoint: url})
		if err := r.Get(t.Context(), "/debug/gc/status", &debug.Status{}); err != nil {
			t.Fatal(err)
		}
		if got := <-seen; got != want {
			t.Errorf("%s: it is asked with %q, want %q", url, got, want)
		}
	}
}

// Neither the API server's authority nor the client's certificate for it is of use to
// another server, nor is it its business.
func TestCredentials_OmitAPIServerSettings(t *testing.T) {
	w := Options{Config: &rest.Config{
		Host: "https://api", BearerToken: "secret",
		TLSClientConfig: rest.TLSClientConfig{CAData: []byte("ca"), CertData: []byte("cert"), KeyData: []byte("key"), ServerName: "api"},
		Impersonate:     rest.ImpersonationConfig{UserName: "somebody"},
	}}
	got, err := w.credentials(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.BearerToken != "secret" || got.Impersonate.UserName != "" {
		t.Errorf("it is asked as %q, impersonating %q", got.BearerToken, got.Impersonate.UserName)
	}
	if diff := cmp.Diff(rest.TLSClientConfig{}, got.TLSClientConfig); diff != "" {
		t.Errorf("of the API server's it keeps\n%s", diff)
	}
	if w.Config.ServerName != "api" {
		t.Error("the configuration that it was given is changed")
	}
}

func TestOptions_Validate(t *testing.T) {
	for text, w := range map[string]Options{
		"":                     {Endpoint: "https://gleaner.example.com"},
		"write NAMESPACE/NAME": {ServiceAccount: "asker"},
		"write a URL, such as": {Endpoint: "127.0.0.1:8443"},
		"unencrypted":          {Endpoint: "http://gleaner.example.com"},
	} {
		err := w.Validate()
		if text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
			t.Errorf("%+v: %v", w, err)
		}
	}
	for _, on := range []string{"http://127.0.0.1:8080", "http://localhost:8080", "http://[::1]:8080"} {
		if err := (Options{Endpoint: on}).Validate(); err != nil {
			t.Errorf("%s is on loopback: %v", on, err)
		}
	}
}

func TestPortOf_UsesNamedPort(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Ports: []corev1.ContainerPort{{Name: "health", ContainerPort: 1}}}, {Ports: []corev1.ContainerPort{{Name: "https", ContainerPort: 2}}},
	}}}
	if got := portOf(pod); got != 2 {
		t.Errorf("it is %d", got)
	}
	if got := portOf(&corev1.Pod{}); got != 8443 {
		t.Errorf("where it names none it is %d", got)
	}
}

// A replica bounds how many clients it looks at in a second.
func TestGet_RetriesTooManyRequests(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) <= 2 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		_, _ = w.Write([]byte(`{"items":[]}`))
	}))
	t.Cleanup(server.Close)
	found := QueryRecords(t.Context(), []*Replica{replicaAt(t, Options{Config: &rest.Config{}, Endpoint: server.URL})}, Selection{InMemory: true})
	if len(found.Queried) != 1 || asked.Load() != 3 {
		t.Errorf("asked %d times: %+v", asked.Load(), found)
	}
}

func TestRetryDelay_IsBounded(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"":                     minRetryDelay,
		"soon":                 minRetryDelay,
		"-1":                   minRetryDelay,
		"1":                    time.Second,
		"86400":                maxRetryDelay,
		"9223372036854775807":  maxRetryDelay,
		"92233720368547758070": minRetryDelay,
	} {
		if got := retryDelay(http.Header{"Retry-After": {header}}); got != want {
			t.Errorf("Retry-After %q: asked again after %s, not %s", header, got, want)
		}
	}
}
