package s3store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/archivetest"
	"github.com/gleaner-dev/gleaner/operator/archive/segment"
)

// putEach stores entries and records, each in a segment of its own.
func putEach(t *testing.T, s *Store, n int) []archive.Entry {
	t.Helper()
	var all []archive.Entry
	for i := range n {
		e := archivetest.Entry(t, i)
		all = append(all, e)
		if err := s.Put(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if err := s.Append(t.Context(), archive.Record{Time: e.Time, UID: e.Object.UID, JSON: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// contents returns all headers and records, and reads all bodies.
func contents(t *testing.T, r archive.Reader) ([]archive.Header, []archive.Record) {
	t.Helper()
	var headers []archive.Header
	var records []archive.Record
	if err := r.Headers(t.Context(), archive.Query{}, func(h archive.Header) bool { headers = append(headers, h); return true }); err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		if _, err := r.Body(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	err := r.Records(t.Context(), "", time.Time{}, time.Time{}, func(r archive.Record) bool { records = append(records, r); return true })
	if err != nil {
		t.Fatal(err)
	}
	return headers, records
}

func TestExpire_MergesSmallSegments(t *testing.T) {
	startServer(t)
	s := openStore(t, "a/")
	putEach(t, s, 40)
	headers, records := contents(t, s)
	before := len(keys(t, "a/"))
	reader := openReader(t, "a/")
	if _, _, err := s.Expire(t.Context(), time.Unix(1, 0), archive.Limits{}); err != nil {
		t.Fatal(err)
	}
	if after := len(keys(t, "a/")); before < 80 || after > 20 {
		t.Errorf("%d segments, then %d", before, after)
	}
	for name, r := range map[string]archive.Reader{"writer": s, "reader from before": reader, "new reader": openReader(t, "a/"), "next writer": openStore(t, "a/")} {
		gotHeaders, gotRecords := contents(t, r)
		if diff := cmp.Diff(headers, gotHeaders); diff != "" {
			t.Errorf("%s: headers (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(records, gotRecords); diff != "" {
			t.Errorf("%s: records (-want +got):\n%s", name, diff)
		}
		u, err := r.Usage(t.Context())
		if err != nil || u.Entries != 40 || u.Records != 40 {
			t.Errorf("%s: usage %+v, %v", name, u, err)
		}
	}
}

// TestExpire_AfterACrashBetweenMergeAndDelete leaves the segments that were merged in place.
func TestExpire_AfterACrashBetweenMergeAndDelete(t *testing.T) {
	startServer(t)
	s := openStore(t, "a/")
	putEach(t, s, 10)
	headers, records := contents(t, s)
	v := s.view
	inputs := v.segments[1:]
	entries, merged, replaced := contentOf(t, s, v, inputs)
	if err := s.append(t.Context(), entries, merged, replaced); err != nil {
		t.Fatal(err)
	}
	next := openStore(t, "a/")
	for range 2 {
		gotHeaders, gotRecords := contents(t, next)
		if !cmp.Equal(headers, gotHeaders) || !cmp.Equal(records, gotRecords) {
			t.Errorf("%d headers and %d records, want %d each", len(gotHeaders), len(gotRecords), len(headers))
		}
		if u, err := next.Usage(t.Context()); err != nil || u.Entries != 10 || u.Records != 10 {
			t.Errorf("usage %+v, %v, want 10 each", u, err)
		}
		if _, _, err := next.Expire(t.Context(), time.Unix(1, 0), archive.Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(keys(t, "a/")); n > 4 {
		t.Errorf("%d segments are left", n)
	}
}

// TestExpire_KeepsWhatIsPutAgain removes by size, and then puts what is older than what is left.
func TestExpire_KeepsWhatIsPutAgain(t *testing.T) {
	startServer(t)
	s := openStore(t, "a/")
	all := putEach(t, s, 8)
	want := map[string]bool{}
	for round := range 20 {
		e := archivetest.Entry(t, round%4)
		if err := s.Put(t.Context(), e, all[7]); err != nil {
			t.Fatal(err)
		}
		u, err := s.Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Expire(t.Context(), time.Unix(1, 0), archive.Limits{MaxBytes: u.Bytes - 1}); err != nil {
			t.Fatal(err)
		}
		clear(want)
		err = s.Headers(t.Context(), archive.Query{}, func(h archive.Header) bool { want[h.ID] = true; return true })
		if err != nil {
			t.Fatal(err)
		}
		if len(s.view.horizons) > maxHorizons+1 {
			t.Fatalf("%d horizons", len(s.view.horizons))
		}
		if got := ids(t, "a/"); !cmp.Equal(got, want) {
			t.Fatalf("round %d: a reader sees %d entries, and the writer %d", round, len(got), len(want))
		}
	}
}

// contentOf returns what a merge would commit.
func contentOf(t *testing.T, s *Store, v *view, inputs []*stored) (entries []segment.Entry, records []segment.Record, change func(uint64, *segment.Footer)) {
	t.Helper()
	var replaced []uint64
	for _, input := range inputs {
		e, r, err := s.content(t.Context(), v, input)
		if err != nil {
			t.Fatal(err)
		}
		entries, records, replaced = append(entries, e...), append(records, r...), append(replaced, input.number)
	}
	return entries, records, func(_ uint64, f *segment.Footer) { f.Replaces = replaced }
}
