package replicas

import (
	"context"
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
	"github.com/gleaner-dev/gleaner/operator/archive/serve"
	"github.com/gleaner-dev/gleaner/operator/debug"
)

// sealed is an archive in memory, newest first.
type sealed struct {
	archive.Reader // nil: other methods are not called

	entries []archive.Entry
}

func (s sealed) Headers(_ context.Context, q archive.Query, yield func(archive.Header) bool) error {
	for _, e := range s.entries {
		if q.Matches(e.Header) && !yield(e.Header) {
			break
		}
	}
	return nil
}

func (s sealed) Body(_ context.Context, h archive.Header) ([]byte, error) {
	i := slices.IndexFunc(s.entries, func(e archive.Entry) bool { return e.ID == h.ID })
	if i < 0 {
		return nil, archive.ErrNotFound
	}
	return s.entries[i].Body, nil
}

// sealedObjects returns an archive of n ConfigMaps.
func sealedObjects(t *testing.T, n int) (s sealed) {
	t.Helper()
	for i := range n {
		name := "o" + strconv.Itoa(i)
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "shop", "uid": "u-" + name}}}
		e, err := archive.Seal(o, archive.Header{Time: at.Add(time.Duration(i) * time.Second)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.entries = slices.Insert(s.entries, 0, e)
	}
	return s
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
	s := sealedObjects(t, 2500)
	a, err := archiveAt(t, handlerOf(s))
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
	for _, e := range s.entries {
		want = append(want, e.Object.Name)
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
	s := sealedObjects(t, 3)
	s.entries[1].Body = append(slices.Clone(s.entries[1].Body), 'x')
	a, err := archiveAt(t, handlerOf(s))
	if err != nil {
		t.Fatal(err)
	}
	body, err := a.Body(t.Context(), s.entries[0].Header)
	if err != nil {
		t.Fatal(err)
	}
	if o, err := archive.Open(s.entries[0].Header, body); err != nil || o.GetName() != "o2" {
		t.Errorf("got %v: %v", o, err)
	}
	if _, err := a.Body(t.Context(), s.entries[1].Header); !errors.Is(err, archive.ErrCorrupt) {
		t.Errorf("a changed body: %v", err)
	}
	gone := s.entries[2].Header
	gone.ID = "gone"
	if _, err := a.Body(t.Context(), gone); !errors.Is(err, archive.ErrNotFound) {
		t.Errorf("an entry that is gone: %v", err)
	}
}

// Some of the cascade would be missing, and so would be what is restored.
func TestArchive_IncompleteListsAreErrors(t *testing.T) {
	whole := handlerOf(sealedObjects(t, 3))
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
