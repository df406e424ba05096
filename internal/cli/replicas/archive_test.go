package replicas

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/memory"
	"github.com/gleaner-dev/gleaner/operator/archive/serve"
	"github.com/gleaner-dev/gleaner/operator/debug"
)

// configMapsIn returns an archive of n ConfigMaps, and their headers.
func configMapsIn(t *testing.T, n int) (m *memory.Archive, headers []archive.Header) {
	t.Helper()
	m = &memory.Archive{}
	for i := range n {
		name := "o" + strconv.Itoa(i)
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "shop", "uid": "u-" + name}}}
		headers = append(headers, m.Add(t, o, at.Add(time.Duration(i)*time.Second), archive.Cause{}))
	}
	return m, headers
}

// archiveAt opens the archive of a server.
func archiveAt(t *testing.T, h http.Handler) (*Archive, error) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	a, err := OpenArchive(t.Context(), Options{Config: &rest.Config{}, Endpoint: server.URL})
	if err == nil {
		t.Cleanup(func() {
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return a, err
}

func handlerOf(r archive.Reader) *http.ServeMux {
	mux := http.NewServeMux()
	for path, handler := range serve.Handlers(serve.Source{Archive: r, ReadAccess: func(r *http.Request) debug.ReadAccess { return debug.AllowAll(r) }}) {
		mux.Handle(path, handler)
	}
	return mux
}

func TestArchive_ReadsAllPages(t *testing.T) {
	m, headers := configMapsIn(t, 2500)
	a, err := archiveAt(t, handlerOf(m))
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	if err := a.Headers(t.Context(), archive.Query{}, func(h archive.Header) bool {
		got = append(got, h.Object.Name)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	for _, h := range slices.Backward(headers) {
		want = append(want, h.Object.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	n := 0
	if err := a.Headers(t.Context(), archive.Query{}, func(archive.Header) bool { n++; return n < 3 }); err != nil || n != 3 {
		t.Errorf("it was called %d times after it had enough: %v", n, err)
	}
}

func TestArchive_BodiesAreVerified(t *testing.T) {
	m, headers := configMapsIn(t, 3)
	m.Corrupt(headers[1].ID)
	a, err := archiveAt(t, handlerOf(m))
	if err != nil {
		t.Fatal(err)
	}
	body, err := a.Body(t.Context(), headers[2])
	if err != nil {
		t.Fatal(err)
	}
	if o, err := archive.Open(headers[2], body); err != nil || o.GetName() != "o2" {
		t.Errorf("got %v: %v", o, err)
	}
	if _, err := a.Body(t.Context(), headers[1]); !errors.Is(err, archive.ErrCorrupt) {
		t.Errorf("a changed body: %v", err)
	}
	gone := headers[0]
	gone.ID = "gone"
	if _, err := a.Body(t.Context(), gone); !errors.Is(err, archive.ErrNotFound) {
		t.Errorf("an entry that is gone: %v", err)
	}
}

// Some of the cascade would be missing, and so would be what is restored.
func TestArchive_IncompleteListsAreErrors(t *testing.T) {
	m, _ := configMapsIn(t, 3)
	whole := handlerOf(m)
	a, err := archiveAt(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("limit") == "" {
			w.Header().Set("Warning", `299 gleaner "response is incomplete"`)
		}
		whole.ServeHTTP(w, r)
	}))
	if err != nil {
		t.Fatal(err)
	}
	err = a.Headers(t.Context(), archive.Query{}, func(archive.Header) bool { return true })
	if err == nil || !strings.Contains(err.Error(), "incomplete") {
		t.Errorf("got %v", err)
	}
}

func TestArchive_PagesThatRepeatAreErrors(t *testing.T) {
	a, err := archiveAt(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"items":[],"continue":"same"}`))
	}))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Headers(t.Context(), archive.Query{}, func(archive.Header) bool { return true }); err == nil || !strings.Contains(err.Error(), "that page again") {
		t.Errorf("got %v", err)
	}
}

func TestOpenArchive_SaysWhatToDoWithoutOne(t *testing.T) {
	_, err := archiveAt(t, http.NotFoundHandler())
	if err == nil || !strings.Contains(err.Error(), "pass --archive LOCATION") {
		t.Errorf("got %v", err)
	}
}
