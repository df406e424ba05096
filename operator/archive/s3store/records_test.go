package s3store

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/archivetest"
)

// Of an archive with many entries, those of one object, or one cascade, are in few segments.
func TestHeaders_OfAnObjectAreReadFromFewSegments(t *testing.T) {
	startServer(t)
	s := openStore(t, "")
	const objects = 60
	for i := range objects {
		if err := s.Put(t.Context(), archivetest.EntryOf(t, i, "content", archive.Header{Cause: archive.Cause{Root: types.UID(fmt.Sprint("root-", i/2))}})); err != nil {
			t.Fatal(err)
		}
	}
	v, err := s.current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(byNewest(v, archive.Query{}, &corruption{})); n != objects {
		t.Fatalf("%d segments; want %d", n, objects)
	}
	expect := func(q archive.Query, want int) {
		t.Helper()
		found, n := 0, len(byNewest(v, q, &corruption{}))
		err := s.Headers(t.Context(), q, func(archive.Header) bool { found++; return true })
		if found != want || err != nil || n < want || n > objects/10 {
			t.Errorf("%+v: %d headers in %d segments of %d, %v; want %d", q, found, n, objects, err, want)
		}
	}
	for i := range objects {
		expect(archive.Query{UID: types.UID(fmt.Sprint("uid-", i))}, 1)
		expect(archive.Query{Root: types.UID(fmt.Sprint("root-", i/2))}, 2)
	}
	expect(archive.Query{UID: "uid-1", Root: "root-7"}, 0)
}

// Of an archive with many records, those about one object are in few segments.
func TestRecords_OfAnObjectAreReadFromFewSegments(t *testing.T) {
	startServer(t)
	s := openStore(t, "")
	began := time.Now()
	const objects = 60
	for i := range objects {
		r := archive.Record{Time: began.Add(time.Duration(i)), UID: types.UID(fmt.Sprint("uid-", i)), JSON: []byte("{}")}
		if err := s.Append(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	v, err := s.current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	segments := func(uid types.UID) int { return len(byOldestRecord(v, &recordMerge{uid: uid}, &corruption{})) }
	if n := segments(""); n != objects {
		t.Fatalf("%d segments; want %d", n, objects)
	}
	for i := range objects {
		uid, found := types.UID(fmt.Sprint("uid-", i)), 0
		if n := segments(uid); n == 0 || n > objects/10 {
			t.Errorf("records of %s are looked for in %d segments of %d", uid, n, objects)
		}
		err := s.Records(t.Context(), uid, time.Time{}, time.Time{}, func(archive.Record) bool { found++; return true })
		if err != nil || found != 1 {
			t.Errorf("%d records of %s, %v", found, uid, err)
		}
	}
}
