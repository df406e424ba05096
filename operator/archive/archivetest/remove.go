package archivetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/operator/archive"
)

func wantRemoved(t *testing.T, s archive.Store, want int64, ids ...string) {
	t.Helper()
	if n, err := s.Remove(t.Context(), ids...); err != nil || n != want {
		t.Errorf("removed %d, %v; want %d", n, err, want)
	}
}

func removeKeepsWhatOthersHave(t *testing.T, p Place) {
	s := p.Open(t)
	first, second, third := EntryOf(t, 1, "the same", archive.Header{}), EntryOf(t, 2, "the same", archive.Header{}), Entry(t, 3)
	put(t, s, first, third)
	put(t, s, second)
	record := archive.Record{Time: first.Time, UID: first.Object.UID, JSON: []byte(`{"a":1}`)}
	if err := s.Append(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	wantRemoved(t, s, 1, first.ID, first.ID, Entry(t, 99).ID)
	wantRemoved(t, s, 0, first.ID)
	wantEntries(t, s, archive.Query{}, third, second)
	_, err := s.Body(t.Context(), first.Header)
	if err == nil { // the body that both have
		_, err = s.Body(t.Context(), second.Header)
		if err != nil {
			t.Error(err)
		}
	} else {
		wantError(t, err, archive.ErrNotFound)
	}
	if _, err := s.Remove(t.Context(), "x"); err == nil {
		t.Error("an invalid ID is no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Remove(ctx, second.ID); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	closeStore(t, s)
	s = p.Open(t)
	defer closeStore(t, s)
	wantEntries(t, s, archive.Query{}, third, second)
	records := 0
	if err := s.Records(t.Context(), "", time.Time{}, time.Time{}, func(archive.Record) bool { records++; return true }); err != nil || records != 1 {
		t.Errorf("%d records, %v", records, err)
	}
}

func removeOfMany(t *testing.T, p Place) {
	s := p.Open(t)
	defer closeStore(t, s)
	all := entries(t, 450) // more than one transaction
	put(t, s, all...)
	last := Entry(t, 1000)
	put(t, s, last)
	ids := make([]string, len(all))
	for i, e := range all {
		ids[i] = e.ID
	}
	wantRemoved(t, s, int64(len(ids)), ids...)
	wantEntries(t, s, archive.Query{}, last)
	if u, err := s.Usage(t.Context()); err != nil || u.Entries != 1 {
		t.Errorf("what is left: %+v %v", u, err)
	}
	wantRemoved(t, s, 1, last.ID)
	wantEntries(t, s, archive.Query{})
	put(t, s, all[0]) // it is no longer there
	wantEntries(t, s, archive.Query{}, all[0])
}
