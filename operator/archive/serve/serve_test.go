package serve_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	diff "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/serve"
	"github.com/gleaner-dev/gleaner/operator/debug"
	"github.com/gleaner-dev/gleaner/operator/record"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// memory is an archive in memory: headers from the newest to the oldest.
type memory struct {
	archive.Reader // nil: other methods are not called

	headers []archive.Header
	failure error // of Headers, after all of them
	bodies  map[string]error
	block   chan struct{} // if not nil, Headers waits for it, or for its context, after the first
}

func (m *memory) Headers(ctx context.Context, q archive.Query, yield func(archive.Header) bool) error {
	for i, h := range m.headers {
		if i == 1 && m.block != nil {
			select {
			case <-m.block:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if selected(q, h) && !yield(h) {
			return nil
		}
	}
	return m.failure
}

func selected(q archive.Query, h archive.Header) bool {
	return (q.UID == "" || q.UID == h.Object.UID) && (q.Name == "" || q.Name == h.Object.Name) && (q.Kind == "" || q.Kind == h.Object.Kind) &&
		(q.Root == "" || q.Root == h.Cause.Root) && (q.Namespace == nil || *q.Namespace == h.Object.Namespace) &&
		(q.Since.IsZero() || !h.Time.Before(q.Since)) && (q.Before.IsZero() || h.Time.Before(q.Before))
}

func (m *memory) Body(_ context.Context, h archive.Header) ([]byte, error) {
	if err := m.bodies[h.ID]; err != nil {
		return nil, err
	}
	return []byte("body of " + h.ID), nil
}

// archived returns n headers, of which three each have the same time.
func archived(n int) *memory {
	m := &memory{}
	for i := range n {
		h := archive.Header{ID: fmt.Sprintf("%04d", i), Time: start.Add(time.Duration(i/3) * time.Nanosecond)}
		h.Object = archive.Reference{APIVersion: "v1", Kind: "ConfigMap", Namespace: []string{"shop", "other"}[i%2], Name: "o" + h.ID, UID: types.UID("u" + h.ID)}
		m.headers = append(m.headers, h)
	}
	slices.SortFunc(m.headers, func(a, b archive.Header) int { return cmp.Or(b.Time.Compare(a.Time), strings.Compare(b.ID, a.ID)) })
	return m
}

func only(namespace string) func(*http.Request) debug.ReadAccess {
	return func(*http.Request) debug.ReadAccess {
		return func(o record.Object) bool { return o.Namespace == namespace }
	}
}

func get(t *testing.T, s serve.Source, path string, v url.Values) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	serve.Handlers(s)[path].ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path+"?"+v.Encode(), nil))
	return w
}

func pageOf(t *testing.T, w *httptest.ResponseRecorder) (page serve.Page) {
	t.Helper()
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil {
		t.Fatal(err)
	}
	return page
}

// allPages returns the IDs on all pages.
func allPages(t *testing.T, s serve.Source, q archive.Query, limit string) (ids []string, pages int) {
	t.Helper()
	for position := ""; ; {
		v := serve.Values(q, position)
		v.Set("limit", limit)
		page := pageOf(t, get(t, s, serve.HeadersPath, v))
		for _, h := range page.Items {
			ids = append(ids, h.ID)
		}
		if pages++; page.Continue == "" {
			return ids, pages
		}
		if position = page.Continue; pages > 1000 {
			t.Fatal("the pages have no end")
		}
	}
}

func idsOf(headers []archive.Header, keep func(archive.Header) bool) (ids []string) {
	for _, h := range headers {
		if keep(h) {
			ids = append(ids, h.ID)
		}
	}
	return ids
}

func all(archive.Header) bool { return true }

func TestHeaders_PagesHaveEachEntryOnce(t *testing.T) {
	m := archived(100)
	s := serve.Source{Archive: m, ReadAccess: debugAll}
	for limit, pages := range map[string]int{"1": 100, "7": 15, "99": 2, "100": 1, "5000": 1} {
		ids, n := allPages(t, s, archive.Query{}, limit)
		if d := diff.Diff(idsOf(m.headers, all), ids); d != "" || n != pages {
			t.Errorf("limit %s: %d pages\n%s", limit, n, d)
		}
	}
	before := start.Add(10)
	ids, _ := allPages(t, s, archive.Query{Before: before}, "4")
	if d := diff.Diff(idsOf(m.headers, func(h archive.Header) bool { return h.Time.Before(before) }), ids); d != "" {
		t.Errorf("with a time: %s", d)
	}
}

func debugAll(r *http.Request) debug.ReadAccess { return debug.AllowAll(r) }

func TestHeaders_OmitsObjectsThatTheClientMayNotGet(t *testing.T) {
	m := archived(50)
	ids, _ := allPages(t, serve.Source{Archive: m, ReadAccess: only("shop")}, archive.Query{}, "3")
	if d := diff.Diff(idsOf(m.headers, func(h archive.Header) bool { return h.Object.Namespace == "shop" }), ids); d != "" {
		t.Error(d)
	}
}

func TestHeaders_WithholdsMessagesAboutOtherOwners(t *testing.T) {
	m := archived(1)
	m.headers[0].Cause = archive.Cause{Message: "owner other/secret is gone", Reason: "OwnersGone"}
	m.headers[0].Owners = []archive.Reference{{Kind: "ConfigMap", Namespace: "other", Name: "secret"}}
	for namespace, want := range map[string]string{"shop": "", "": "owner other/secret is gone"} {
		access := only(namespace)
		if namespace == "" {
			access = debugAll
		}
		page := pageOf(t, get(t, serve.Source{Archive: m, ReadAccess: access}, serve.HeadersPath, nil))
		if len(page.Items) != 1 || page.Items[0].Cause.Message != want || page.Items[0].Cause.Reason == "" {
			t.Errorf("%q: got %+v", namespace, page.Items)
		}
	}
}

func TestHeaders_QueriesSurviveTheURL(t *testing.T) {
	m := archived(30)
	m.headers[3].Cause.Root = "root&id=1"
	empty, shop := "", "shop"
	for claim, c := range map[string]struct {
		query archive.Query
		want  int
	}{
		"a UID":                 {archive.Query{UID: "u0007"}, 1},
		"a root":                {archive.Query{Root: "root&id=1"}, 1},
		"a namespace":           {archive.Query{Namespace: &shop}, 15},
		"cluster-scoped":        {archive.Query{Namespace: &empty}, 0},
		"a kind that is absent": {archive.Query{Kind: "Secret"}, 0},
		"a name":                {archive.Query{Name: "o0001", Kind: "ConfigMap"}, 1},
		"a period":              {archive.Query{Since: start.Add(1), Before: start.Add(2)}, 3},
	} {
		ids, _ := allPages(t, serve.Source{Archive: m, ReadAccess: debugAll}, c.query, "1000")
		if len(ids) != c.want {
			t.Errorf("%s: %d entries, want %d", claim, len(ids), c.want)
		}
	}
}

func TestHeaders_SlowStoresAreServedInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := archived(3)
		m.block = make(chan struct{})
		page := pageOf(t, get(t, serve.Source{Archive: m, ReadAccess: debugAll}, serve.HeadersPath, nil))
		if len(page.Items) != 1 || page.Continue == "" {
			t.Errorf("what was read before the time was up is lost: %+v", page)
		}
	})
}

func TestHeaders_ErrorsAreReported(t *testing.T) {
	m := archived(3)
	m.failure = fmt.Errorf("read header: %w", archive.ErrCorrupt)
	if page := pageOf(t, get(t, serve.Source{Archive: m, ReadAccess: debugAll}, serve.HeadersPath, nil)); len(page.Items) != 3 || page.Corrupt == "" {
		t.Errorf("corrupt: %+v", page)
	}
	m.failure = errors.New("disk on fire")
	if w := get(t, serve.Source{Archive: m, ReadAccess: debugAll}, serve.HeadersPath, nil); w.Code != http.StatusInternalServerError {
		t.Errorf("unreadable: %d %s", w.Code, w.Body)
	}
	for _, v := range []url.Values{{"limit": {"0"}}, {"limit": {"x"}}, {"since": {"yesterday"}}, {"before": {"1"}}, {"continue": {"x"}}, {"continue": {"2026-01-02T03:04:05Z,"}}, {"name": {strings.Repeat("x", 2000)}}} {
		if w := get(t, serve.Source{Archive: m, ReadAccess: debugAll}, serve.HeadersPath, v); w.Code != http.StatusBadRequest {
			t.Errorf("%v: %d %s", v, w.Code, w.Body)
		}
	}
}

func TestBody_ServesWhatTheClientMayGet(t *testing.T) {
	m := archived(6)
	at := func(id string) archive.Header {
		return m.headers[slices.IndexFunc(m.headers, func(h archive.Header) bool { return h.ID == id })]
	}
	m.bodies = map[string]error{"0002": fmt.Errorf("read: %w", archive.ErrCorrupt), "0004": archive.ErrNotFound}
	forged := at("0001")
	forged.Object = at("0000").Object
	gone := at("0000")
	gone.ID = "9999"
	for claim, c := range map[string]struct {
		header archive.Header
		code   int
	}{
		"an object of its namespace":              {at("0000"), http.StatusOK},
		"an object of another namespace":          {at("0001"), http.StatusNotFound},
		"an entry with the UID of another object": {forged, http.StatusNotFound},
		"an entry that does not exist":            {gone, http.StatusNotFound},
		"a body that is corrupt":                  {at("0002"), http.StatusUnprocessableEntity},
		"a body that was pruned":                  {at("0004"), http.StatusNotFound},
		"nothing":                                 {archive.Header{}, http.StatusBadRequest},
	} {
		w := get(t, serve.Source{Archive: m, ReadAccess: only("shop")}, serve.BodyPath, serve.EntryValues(c.header))
		if w.Code != c.code || (c.code == http.StatusOK) != (w.Body.String() == "body of "+c.header.ID) {
			t.Errorf("%s: %d %q", claim, w.Code, w.Body)
		}
		if strings.Contains(w.Body.String(), "body of") && w.Code != http.StatusOK {
			t.Errorf("%s: a body in an error: %s", claim, w.Body)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("limit=3&continue=2026-01-02T03:04:05Z,1")
	f.Add("uid=u&time=2026-01-02T03:04:05.000000006Z&id=0000")
	f.Fuzz(func(t *testing.T, query string) {
		v, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		s := serve.Source{Archive: archived(3), ReadAccess: only("shop")}
		for path := range serve.Handlers(s) {
			if w := get(t, s, path, v); w.Code == http.StatusInternalServerError || strings.Contains(w.Body.String(), "other") && w.Code == http.StatusOK {
				t.Errorf("%s?%s: %d %s", path, query, w.Code, w.Body)
			}
		}
	})
}
