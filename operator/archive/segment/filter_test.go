package segment

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/archivetest"
)

// footerOf returns the footer of a segment with records about numbered objects, two about each.
func footerOf(t *testing.T, objects int) Footer {
	t.Helper()
	var records []Record
	for i := range 2 * objects {
		records = append(records, Record{Record: archive.Record{Time: testTime, UID: types.UID(fmt.Sprint("uid-", i%objects))}})
	}
	data, _, err := Build(Footer{}, nil, records)
	if err != nil {
		t.Fatal(err)
	}
	f, err := ReadFooter(data, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFooter_SaysWhichObjectsRecordsMayBeAbout(t *testing.T) {
	for objects, most := range map[int]int{1: 50, 10: 50, 1000: 50, 13_000: 50, 30_000: 400} {
		f := footerOf(t, objects)
		for i := range objects {
			if uid := fmt.Sprint("uid-", i); !f.MayHaveRecordsOf(uid) {
				t.Fatalf("of %d objects, %s is not found", objects, uid)
			}
		}
		found := 0
		for i := range 1000 {
			if f.MayHaveRecordsOf(fmt.Sprint("other-", i)) {
				found++
			}
		}
		if found > most {
			t.Errorf("of %d objects, %d of 1,000 others are found; want at most %d", objects, found, most)
		}
		if !f.MayHaveRecordsOf("") {
			t.Errorf("of %d objects, none is found", objects)
		}
	}
}

func TestFooter_OfAnEarlierVersionMayHaveRecordsOfAnyObject(t *testing.T) {
	f := footerOf(t, 10)
	f.RecordUIDs = nil
	if !f.MayHaveRecordsOf("other") || !f.MayHaveRecordsOf("") {
		t.Error("its records are not found")
	}
	if f.Records = 0; f.MayHaveRecordsOf("other") || f.MayHaveRecordsOf("") {
		t.Error("without records, some are found")
	}
}

func TestFooter_SaysWhichObjectsAndCascadesEntriesMayBeOf(t *testing.T) {
	var entries []Entry
	for i := range 3 {
		entries = append(entries, Entry{Entry: archivetest.EntryOf(t, i, "content", archive.Header{Cause: archive.Cause{Root: "root"}})})
	}
	data, _, err := Build(Footer{}, entries, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := ReadFooter(data, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[string]bool{"uid-0": true, "uid-1": true, "uid-2": true, "root": true, "": true, "other-1": false, "other-2": false} {
		if f.MayHaveEntriesOf(uid) != want {
			t.Errorf("an entry may be of %q: %t", uid, !want)
		}
	}
	f.EntryUIDs = nil
	if !f.MayHaveEntriesOf("other-1") {
		t.Error("entries of an earlier version are not found")
	}
}
