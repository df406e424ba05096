package archivetest

import (
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/operator/archive"
)

func wantExpired(t *testing.T, s archive.Store, now time.Time, limits archive.Limits, entries, records int64) {
	t.Helper()
	gotEntries, gotRecords, err := s.Expire(t.Context(), now, limits)
	if err != nil {
		t.Fatal(err)
	}
	if gotEntries != entries || gotRecords != records {
		t.Errorf("%d entries and %d records expired, want %d and %d", gotEntries, gotRecords, entries, records)
	}
}

func expireByTime(t *testing.T, p Place) {
	s := p.Open(t)
	hour := start.Add(time.Hour)
	first := EntryOf(t, 1, "the same", archive.Header{Expires: hour})
	second := EntryOf(t, 2, "other", archive.Header{Expires: hour.Add(time.Second)})
	never := EntryOf(t, 1, "the same", archive.Header{})
	put(t, s, first, never)
	put(t, s, second)
	wantExpired(t, s, hour.Add(-1), archive.Limits{}, 0, 0)
	wantEntries(t, s, archive.Query{}, second, never, first)
	wantExpired(t, s, hour, archive.Limits{}, 1, 0)
	wantEntries(t, s, archive.Query{}, second, never) // with the body that two had
	_, err := s.Body(t.Context(), first.Header)
	wantError(t, err, archive.ErrNotFound)
	wantExpired(t, s, hour.Add(time.Hour), archive.Limits{}, 1, 0)
	wantEntries(t, s, archive.Query{UID: first.Object.UID}, never)
	closeStore(t, s)
	s = p.Open(t)
	defer closeStore(t, s)
	wantEntries(t, s, archive.Query{}, never)
	wantExpired(t, s, hour.AddDate(100, 0, 0), archive.Limits{}, 0, 0)
}

func expireBySize(t *testing.T, p Place) {
	s := p.Open(t)
	all := entries(t, 20)
	size := int64(0)
	for _, e := range all {
		put(t, s, e)
	}
	for _, e := range all[15:] {
		size += e.Size
	}
	wantExpired(t, s, start, archive.Limits{MaxBytes: size}, 15, 0)
	wantEntries(t, s, archive.Query{}, all[19], all[18], all[17], all[16], all[15])
	wantExpired(t, s, start, archive.Limits{MaxBytes: size}, 0, 0)
	wantExpired(t, s, start, archive.Limits{}, 0, 0)
	closeStore(t, s)
	s = p.Open(t)
	defer closeStore(t, s)
	wantExpired(t, s, start, archive.Limits{MaxBytes: 1}, 5, 0)
	wantEntries(t, s, archive.Query{})
	u, err := s.Usage(t.Context())
	if err != nil || u != (archive.Usage{}) {
		t.Errorf("usage %+v, %v, want none", u, err)
	}
	put(t, s, all[3])
	wantEntries(t, s, archive.Query{}, all[3])
}

func expireRecordsByAge(t *testing.T, p Place) {
	s := p.Open(t)
	defer closeStore(t, s)
	if err := s.Append(t.Context(), record(0, "a"), record(60, "a"), record(120, "b")); err != nil {
		t.Fatal(err)
	}
	put(t, s, Entry(t, 0))
	limits := archive.Limits{RecordTTL: time.Minute}
	wantExpired(t, s, start.Add(time.Minute-1), limits, 0, 0)
	wantExpired(t, s, start.Add(2*time.Minute), limits, 0, 2)
	left, err := records(t, s, "", time.Time{}, time.Time{})
	if err != nil || len(left) != 1 || left[0].UID != "b" {
		t.Errorf("records %v, %v, want that of b", left, err)
	}
	if of, err := records(t, s, "a", time.Time{}, time.Time{}); err != nil || len(of) != 0 {
		t.Errorf("records %v, %v, want none of a", of, err)
	}
	wantExpired(t, s, start, archive.Limits{MaxBytes: 1}, 1, 1)
}

func usageCountsWhatIsStored(t *testing.T, p Place) {
	s := p.Open(t)
	want := archive.Usage{Entries: 3, Oldest: start}
	all := entries(t, 3)
	for _, e := range all {
		want.Bytes += e.Size
	}
	put(t, s, all[2])
	put(t, s, all[0], all[1])
	for range 2 {
		u, err := s.Usage(t.Context())
		if err != nil || u != want {
			t.Errorf("usage %+v, %v, want %+v", u, err, want)
		}
		closeStore(t, s)
		s = p.Open(t)
	}
	if err := s.Append(t.Context(), record(1, "u")); err != nil {
		t.Fatal(err)
	}
	u, err := s.Usage(t.Context())
	if err != nil || u.Records != 1 || u.Bytes <= want.Bytes {
		t.Errorf("usage %+v, %v, want a record more than %+v", u, err, want)
	}
	closeStore(t, s)
}
