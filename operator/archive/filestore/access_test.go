package filestore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/archivetest"
)

func TestOpen_OneProcessWrites(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	_, err := Open(dir, impatient)
	if !errors.Is(err, archive.ErrReadOnly) || !strings.Contains(err.Error(), "run one replica only") || !strings.Contains(err.Error(), "process ") {
		t.Errorf("a second writer: error %v", err)
	}
	_, err = OpenReadOnly(dir, impatient)
	if !errors.Is(err, archive.ErrInUse) || !strings.Contains(err.Error(), "read it through the operator, or stop the operator first") {
		t.Errorf("a reader: error %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	first, err := OpenReadOnly(dir, impatient)
	if err != nil {
		t.Fatal(err)
	}
	second, err := OpenReadOnly(dir, impatient)
	if err != nil {
		t.Errorf("a second reader: %v", err)
	} else if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, impatient); !errors.Is(err, archive.ErrReadOnly) || !strings.Contains(err.Error(), "end what reads the folder directly") {
		t.Errorf("a writer while a reader has it open: error %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpenReadOnly_NeedsAnArchive(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenReadOnly(filepath.Join(dir, "missing"), impatient); !errors.Is(err, archive.ErrNotFound) {
		t.Errorf("error %v, want ErrNotFound", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("reading created %v, %v", entries, err)
	}
}

func TestClose_RefusesWhatComesLater(t *testing.T) {
	s := openStore(t, t.TempDir())
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), archivetest.Entry(t, 1)); err == nil {
		t.Error("a closed store accepts entries")
	}
	if _, err := s.Usage(t.Context()); err == nil {
		t.Error("a closed store is read")
	}
}

// TestExpire_SpaceIsUsedAgain lets as much expire as is put.
func TestExpire_SpaceIsUsedAgain(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	defer s.Close()
	var sizes []int64
	for round := range 8 {
		for i := range 10 {
			var batch []archive.Entry
			for j := range 50 {
				batch = append(batch, archivetest.Entry(t, round*500+i*50+j))
			}
			if err := s.Put(t.Context(), batch...); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := s.Expire(t.Context(), time.Now(), archive.Limits{MaxBytes: 1}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, fileName))
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, info.Size())
	}
	if sizes[7] > sizes[2]*3/2 {
		t.Errorf("the file grows: %d", sizes)
	}
}
