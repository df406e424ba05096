package s3store

import (
	"errors"
	"testing"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/archivetest"
)

// What is left of a damaged segment can't be written again, so it stays whole; the other segments are rewritten.
func TestRemove_LeavesADamagedSegmentAsItIs(t *testing.T) {
	server := startServer(t)
	s := openStore(t, "a/")
	damaged, whole := []archive.Entry{archivetest.Entry(t, 1), archivetest.Entry(t, 2)}, []archive.Entry{archivetest.Entry(t, 3), archivetest.Entry(t, 4)}
	for _, entries := range [][]archive.Entry{damaged, whole} {
		if err := s.Put(t.Context(), entries...); err != nil {
			t.Fatal(err)
		}
	}
	server.corrupt(t, "a/", damaged[1].Body)
	n, err := s.Remove(t.Context(), damaged[0].ID, whole[0].ID)
	if !errors.Is(err, archive.ErrCorrupt) || n != 1 {
		t.Errorf("removed %d, %v", n, err)
	}
	for _, e := range []archive.Entry{damaged[0], whole[1]} {
		if _, err := s.Body(t.Context(), e.Header); err != nil {
			t.Errorf("%s: %v", e.Object.Name, err)
		}
	}
	if _, err := s.Body(t.Context(), whole[0].Header); !errors.Is(err, archive.ErrNotFound) {
		t.Errorf("a removed entry: %v", err)
	}
}

func TestRemove_ByAWriterThatWasFenced(t *testing.T) {
	startServer(t)
	s := openStore(t, "a/")
	e := archivetest.Entry(t, 1)
	if err := s.Put(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	next := openStore(t, "a/")
	if n, err := s.Remove(t.Context(), e.ID); !errors.Is(err, archive.ErrFenced) || n != 0 {
		t.Errorf("removed %d, %v", n, err)
	}
	if _, err := next.Body(t.Context(), e.Header); err != nil {
		t.Error(err)
	}
}
