package filestore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/archivetest"
	"github.com/gleaner-dev/gleaner/operator/archive/codec"
)

// filled returns the file of an archive with entries and records, after some have expired.
func filled(t *testing.T, n int) ([]byte, map[string]archive.Entry) {
	t.Helper()
	dir := t.TempDir()
	s := openStore(t, dir)
	stored := map[string]archive.Entry{}
	for i := range n {
		e := archivetest.Entry(t, i)
		stored[e.ID] = e
		if err := s.Put(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if err := s.Append(t.Context(), archive.Record{Time: e.Time, UID: e.Object.UID, JSON: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.Expire(t.Context(), time.Now(), archive.Limits{MaxBytes: int64(n) * 80}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	return data, stored
}

// use opens a file, reads everything and writes. What it reads must have been stored, and every
// error must say that something is corrupt.
func use(t *testing.T, data []byte, stored map[string]archive.Entry) (opened bool) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileName), data, 0o600); err != nil {
		t.Fatal(err)
	}
	corrupt := func(doing string, err error) bool {
		if err != nil && !errors.Is(err, archive.ErrCorrupt) {
			t.Errorf("%s: error %v, want ErrCorrupt", doing, err)
		}
		return err != nil
	}
	s, err := Open(dir, impatient)
	if corrupt("open", err) {
		return false
	}
	var found []archive.Header
	corrupt("headers", s.Headers(t.Context(), archive.Query{}, func(h archive.Header) bool { found = append(found, h); return true }))
	for _, h := range found {
		want, ok := stored[h.ID]
		if body, err := s.Body(t.Context(), h); !corrupt("body", err) && (!ok || !bytes.Equal(body, want.Body)) {
			t.Errorf("an entry that was not stored is returned: %s", h.ID)
		}
	}
	corrupt("records", s.Records(t.Context(), "", time.Time{}, time.Time{}, func(archive.Record) bool { return true }))
	e := archivetest.Entry(t, 1<<20)
	if !corrupt("put", s.Put(t.Context(), e)) {
		if body, err := s.Body(t.Context(), e.Header); err != nil || !bytes.Equal(body, e.Body) {
			t.Errorf("what was put cannot be read back: %v", err)
		}
	}
	_, _, err = s.Expire(t.Context(), time.Now().AddDate(1, 0, 0), archive.Limits{MaxBytes: 1})
	corrupt("expire", err)
	corrupt("close", s.Close())
	return true
}

func TestOpen_SurvivesAFlippedBitAnywhere(t *testing.T) {
	data, stored := filled(t, 120)
	opened, refused := 0, 0
	for at := 3; at < len(data); at += 1499 {
		flipped := bytes.Clone(data)
		flipped[at] ^= 1 << (at % 8)
		if use(t, flipped, stored) {
			opened++
		} else {
			refused++
		}
		if t.Failed() {
			t.Fatalf("byte %d of %d", at, len(data))
		}
	}
	if opened == 0 || refused == 0 {
		t.Errorf("%d files were opened, and %d refused", opened, refused)
	}
}

func TestOpen_SurvivesTruncationAnywhere(t *testing.T) {
	data, stored := filled(t, 60)
	for size := 1; size < len(data); size += 4093 {
		use(t, data[:size], stored)
		if t.Failed() {
			t.Fatalf("%d of %d bytes", size, len(data))
		}
	}
}

// TestOpen_DropsATornWrite damages the meta page of the last commit, as a crash while it is
// written can.
func TestOpen_DropsATornWrite(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	first, second := archivetest.Entry(t, 1), archivetest.Entry(t, 2)
	name := filepath.Join(dir, fileName)
	for _, e := range []archive.Entry{first, second} {
		if err := s.Put(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	before, pageSize := s.Recovered(), s.db.Info().PageSize
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	const txid = 16 + 48
	newest := 0
	if bytes.Compare(data[pageSize+txid:][:1], data[txid:][:1]) > 0 {
		newest = pageSize
	}
	copy(data[newest+txid:], "torn")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, dir)
	defer s.Close()
	if before != "" || !strings.Contains(s.Recovered(), "was dropped") {
		t.Errorf("recovered %q, then %q", before, s.Recovered())
	}
	var ids []string
	if err := s.Headers(t.Context(), archive.Query{}, func(h archive.Header) bool { ids = append(ids, h.ID); return true }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ids, []string{first.ID}) {
		t.Errorf("entries %v, want %s", ids, first.ID)
	}
	if err := s.Put(t.Context(), second); err != nil {
		t.Error(err)
	}
}

// TestRead_SurvivesTruncationWhileOpen makes reads of mapped pages fault.
func TestRead_SurvivesTruncationWhileOpen(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	var last archive.Entry
	for i := range 200 {
		last = archivetest.Entry(t, i)
		if err := s.Put(t.Context(), last); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(filepath.Join(dir, fileName), 8192); err != nil {
		t.Fatal(err)
	}
	_, err := s.Body(t.Context(), last.Header)
	if !errors.Is(err, archive.ErrCorrupt) {
		t.Errorf("body: error %v, want ErrCorrupt", err)
	}
	if err := s.Headers(t.Context(), archive.Query{}, func(archive.Header) bool { return true }); !errors.Is(err, archive.ErrCorrupt) {
		t.Errorf("headers: error %v, want ErrCorrupt", err)
	}
	if err := s.Put(t.Context(), archivetest.Entry(t, 201)); !errors.Is(err, archive.ErrCorrupt) {
		t.Errorf("put: error %v, want ErrCorrupt", err)
	}
	if err := s.Close(); err != nil && !errors.Is(err, archive.ErrCorrupt) {
		t.Errorf("close: %v", err)
	}
}

func TestOpen_RefusesANewerFormatAndOtherFiles(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*bbolt.Tx) error
		want   string
	}{
		"newer": {func(tx *bbolt.Tx) error {
			return tx.Bucket(metaBucket).Put(formatKey, codec.WithChecksum([]byte("2")))
		}, "its format is 2, and this version of gleaner knows 1"},
		"another database": {func(tx *bbolt.Tx) error {
			for _, b := range buckets {
				if err := tx.DeleteBucket(b); err != nil {
					return err
				}
			}
			_, err := tx.CreateBucket([]byte("other"))
			return err
		}, "is not an archive"},
	} {
		dir := t.TempDir()
		s := openStore(t, dir)
		if err := s.db.Update(c.change); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		_, writing := Open(dir, impatient)
		_, reading := OpenReadOnly(dir, impatient)
		for _, err := range []error{writing, reading} {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %v, want %q", name, err, c.want)
			}
		}
	}
}
