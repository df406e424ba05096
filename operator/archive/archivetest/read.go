package archivetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/codec"
)

func pointer(s string) *string { return &s }

// at returns the entry of an object, i seconds after the first.
func at(t *testing.T, i int, apiVersion, kind, namespace, name string, uid, root types.UID) archive.Entry {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetUID(uid)
	return EntryOfObject(t, i, o, archive.Header{Cause: archive.Cause{By: archive.ByOther, Root: root}})
}

func headersAreSelectedByEachField(t *testing.T, p Place) {
	s := p.Open(t)
	defer closeStore(t, s)
	deployment := at(t, 1, "apps/v1", "Deployment", "shop", "web", "u1", "u1")
	set := at(t, 2, "apps/v1", "ReplicaSet", "shop", "web-1", "u2", "u1")
	other := at(t, 3, "example.com/v1", "Deployment", "shop", "web", "u10", "")
	cluster := at(t, 4, "v1", "Namespace", "", "shop", "u3", "u3")
	elsewhere := at(t, 5, "apps/v1", "Deployment", "test", "web", "u4", "u4")
	later := at(t, 6, "apps/v1", "Deployment", "shop", "web", "u5", "u1")
	put(t, s, deployment, set, other)
	put(t, s, cluster, elsewhere, later)
	for name, c := range map[string]struct {
		query archive.Query
		want  []archive.Entry
	}{
		"all":             {archive.Query{}, []archive.Entry{later, elsewhere, cluster, other, set, deployment}},
		"UID":             {archive.Query{UID: "u1"}, []archive.Entry{deployment}},
		"root":            {archive.Query{Root: "u1"}, []archive.Entry{later, set, deployment}},
		"group":           {archive.Query{Group: pointer("example.com")}, []archive.Entry{other}},
		"core group":      {archive.Query{Group: pointer("")}, []archive.Entry{cluster}},
		"kind":            {archive.Query{Kind: "Deployment"}, []archive.Entry{later, elsewhere, other, deployment}},
		"namespace":       {archive.Query{Namespace: pointer("test")}, []archive.Entry{elsewhere}},
		"no namespace":    {archive.Query{Namespace: pointer("")}, []archive.Entry{cluster}},
		"name":            {archive.Query{Name: "web-1"}, []archive.Entry{set}},
		"since":           {archive.Query{Since: cluster.Time}, []archive.Entry{later, elsewhere, cluster}},
		"before":          {archive.Query{Before: set.Time}, []archive.Entry{deployment}},
		"a period":        {archive.Query{Since: set.Time, Before: cluster.Time}, []archive.Entry{other, set}},
		"root and period": {archive.Query{Root: "u1", Since: set.Time, Before: later.Time}, []archive.Entry{set}},
		"coordinates": {
			archive.Query{Group: pointer("apps"), Kind: "Deployment", Namespace: pointer("shop"), Name: "web"},
			[]archive.Entry{later, deployment},
		},
		"UID and another name": {archive.Query{UID: "u1", Name: "web-1"}, nil},
		"nothing":              {archive.Query{UID: "u"}, nil},
		"an empty period":      {archive.Query{Since: later.Time.Add(1)}, nil},
	} {
		t.Run(name, func(t *testing.T) { wantEntries(t, s, c.query, c.want...) })
	}
}

func headersComeNewestFirstUntilStop(t *testing.T, p Place) {
	const n = 450
	s := p.Open(t)
	defer closeStore(t, s)
	all := entries(t, n)
	for i := range 3 { // not in the order of time
		var some []archive.Entry
		for j := i; j < n; j += 3 {
			some = append(some, all[j])
		}
		put(t, s, some...)
	}
	got, err := headers(t, s, archive.Query{}, noLimit)
	if err != nil || len(got) != n {
		t.Fatalf("%d headers, %v, want %d", len(got), err, n)
	}
	for i, h := range got {
		if h.ID != all[n-1-i].ID {
			t.Fatalf("header %d is of %s, want %s", i, h.Object, all[n-1-i].Object)
		}
	}
	got, err = headers(t, s, archive.Query{}, 3)
	if err != nil || len(got) != 3 || got[2].ID != all[n-3].ID {
		t.Errorf("%d headers, %v, want the newest 3", len(got), err)
	}
}

func headersEndWithTheContext(t *testing.T, p Place) {
	s := p.Open(t)
	defer closeStore(t, s)
	put(t, s, Entry(t, 1))
	ctx := ended(t)
	wantError(t, s.Headers(ctx, archive.Query{}, func(archive.Header) bool { return true }), context.Canceled)
	wantError(t, s.Records(ctx, "", time.Time{}, time.Time{}, func(archive.Record) bool { return true }), context.Canceled)
	_, err := s.Body(ctx, Entry(t, 1).Header)
	wantError(t, err, context.Canceled)
	_, _, err = s.Expire(ctx, start, archive.Limits{})
	wantError(t, err, context.Canceled)
}

func recordsComeOldestFirstUntilStop(t *testing.T, p Place) {
	s := p.Open(t)
	defer closeStore(t, s)
	var all, ofU1 []archive.Record
	for i := range 450 {
		r := record(i, types.UID(fmt.Sprintf("u%d", i%3)))
		if all = append(all, r); i%3 == 1 {
			ofU1 = append(ofU1, r)
		}
	}
	for _, part := range [][]archive.Record{all[300:], all[:300]} {
		if err := s.Append(t.Context(), part...); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		uid           types.UID
		since, before time.Time
		want          []archive.Record
	}{
		"all":               {want: all},
		"of one object":     {uid: "u1", want: ofU1},
		"of a period":       {since: all[10].Time, before: all[20].Time, want: all[10:20]},
		"both":              {uid: "u1", since: ofU1[2].Time, before: ofU1[5].Time, want: ofU1[2:5]},
		"of no object":      {uid: "u"},
		"of an empty range": {since: all[449].Time.Add(1)},
	} {
		got, err := records(t, s, c.uid, c.since, c.before)
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s (-want +got):\n%s%v", name, diff, err)
		}
	}
	n := 0
	err := s.Records(t.Context(), "", time.Time{}, time.Time{}, func(archive.Record) bool { n++; return n < 5 })
	if n != 5 || err != nil {
		t.Errorf("%d records were yielded, %v, want 5", n, err)
	}
}

func readerSeesWhatWasPut(t *testing.T, p Place) {
	s := p.Open(t)
	put(t, s, Entry(t, 1))
	closeStore(t, s)
	for range 2 { // it changes nothing
		r := p.Reader(t)
		if found, err := headers(t, r, archive.Query{}, noLimit); len(found) != 1 || err != nil {
			t.Errorf("%d headers, %v, want 1", len(found), err)
		}
		if w, ok := r.(archive.Store); ok {
			wantError(t, w.Put(t.Context(), Entry(t, 2)), archive.ErrReadOnly)
			wantError(t, w.Append(t.Context(), record(1, "u")), archive.ErrReadOnly)
			_, _, err := w.Expire(t.Context(), start.AddDate(1, 0, 0), archive.Limits{MaxBytes: 1})
			wantError(t, err, archive.ErrReadOnly)
		}
		closeStore(t, r)
	}
}

func corruptBodyIsNotReturned(t *testing.T, p Place) {
	s := p.Open(t)
	all := entries(t, 3)
	put(t, s, all...)
	closeStore(t, s)
	p.Corrupt(t, all[1].Body)
	s = p.Open(t)
	defer closeStore(t, s)
	_, err := s.Body(t.Context(), all[1].Header)
	wantError(t, err, archive.ErrCorrupt)
	for _, e := range []archive.Entry{all[0], all[2]} {
		if _, err := s.Body(t.Context(), e.Header); err != nil {
			t.Errorf("another body: %v", err)
		}
	}
	again := EntryOf(t, 1, "content 1", archive.Header{}) // the same body
	put(t, s, again)
	if body, err := s.Body(t.Context(), again.Header); err != nil || string(body) != string(again.Body) {
		t.Errorf("what was put after the damage: %v", err)
	}
}

func corruptHeaderIsSkipped(t *testing.T, p Place) {
	s := p.Open(t)
	all := entries(t, 3)
	put(t, s, all...)
	closeStore(t, s)
	encoded, err := codec.EncodeHeader(all[1].Header)
	if err != nil {
		t.Fatal(err)
	}
	p.Corrupt(t, encoded)
	s = p.Open(t)
	defer closeStore(t, s)
	got, err := headers(t, s, archive.Query{}, noLimit)
	wantError(t, err, archive.ErrCorrupt)
	if diff := cmp.Diff([]archive.Header{all[2].Header, all[0].Header}, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	put(t, s, Entry(t, 5))
	if _, _, err := s.Expire(t.Context(), start.AddDate(1, 0, 0), archive.Limits{MaxBytes: 1}); err != nil {
		t.Errorf("expire: %v", err)
	}
	wantEntries(t, s, archive.Query{})
}

func corruptRecordIsSkipped(t *testing.T, p Place) {
	s := p.Open(t)
	all := []archive.Record{record(1, "u"), record(2, "u"), record(3, "u")}
	if err := s.Append(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	encoded, err := codec.EncodeRecord(all[1])
	if err != nil {
		t.Fatal(err)
	}
	p.Corrupt(t, encoded)
	s = p.Open(t)
	defer closeStore(t, s)
	got, err := records(t, s, "u", time.Time{}, time.Time{})
	wantError(t, err, archive.ErrCorrupt)
	if diff := cmp.Diff([]archive.Record{all[0], all[2]}, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	if _, _, err := s.Expire(t.Context(), start.AddDate(1, 0, 0), archive.Limits{RecordTTL: time.Hour}); err != nil {
		t.Errorf("expire: %v", err)
	}
	if got, err := records(t, s, "", time.Time{}, time.Time{}); err != nil || len(got) != 0 {
		t.Errorf("%d records, %v, want none", len(got), err)
	}
}

// putSome stores entries and records, of which every other entry has expired.
func putSome(t *testing.T, s archive.Store, from, n int) {
	for i := from; i < from+n; i++ {
		h := archive.Header{}
		if i%2 == 0 {
			h.Expires = start
		}
		e := EntryOf(t, i, fmt.Sprint("content ", i), h)
		if err := s.Put(t.Context(), e); err != nil {
			t.Error(err)
		}
		if err := s.Append(t.Context(), record(i, e.Object.UID)); err != nil {
			t.Error(err)
		}
	}
}

func concurrentPutReadAndExpire(t *testing.T, p Place) {
	const perWriter = 40
	s := p.Open(t)
	defer closeStore(t, s)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() { putSome(t, s, w*perWriter, perWriter) })
	}
	all.Go(func() {
		for range 10 {
			if _, _, err := s.Expire(t.Context(), start, archive.Limits{}); err != nil {
				t.Error(err)
			}
			if _, err := headers(t, s, archive.Query{}, noLimit); err != nil {
				t.Error(err)
			}
			if _, err := records(t, s, "", time.Time{}, time.Time{}); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	if _, _, err := s.Expire(t.Context(), start, archive.Limits{}); err != nil {
		t.Error(err)
	}
	u, err := s.Usage(t.Context())
	if err != nil || u.Entries != writers*perWriter/2 || u.Records != writers*perWriter {
		t.Errorf("usage %+v, %v, want %d entries and %d records", u, err, writers*perWriter/2, writers*perWriter)
	}
}
