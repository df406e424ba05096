package filestore

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/archivetest"
)

func TestMain(m *testing.M) {
	archivetest.Child(func(dir string) (archive.Store, error) { return Open(dir, Options{}) })
	os.Exit(m.Run())
}

// impatient does not wait for locks.
var impatient = Options{LockTimeout: time.Millisecond}

func openStore(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir, impatient)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	archivetest.Run(t, func(t *testing.T) archivetest.Place {
		dir := t.TempDir()
		return archivetest.Place{
			Location: dir,
			Open:     func(t *testing.T) archive.Store { return openStore(t, dir) },
			Reader: func(t *testing.T) archive.Reader {
				s, err := OpenReadOnly(dir, impatient)
				if err != nil {
					t.Fatal(err)
				}
				return s
			},
			Corrupt: func(t *testing.T, stored []byte) { corrupt(t, filepath.Join(dir, fileName), stored) },
		}
	})
}

// corrupt flips a bit wherever the bytes are in a file: old pages may have them too.
func corrupt(t *testing.T, name string, stored []byte) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for {
		at := bytes.Index(data, stored)
		if at < 0 {
			break
		}
		data[at+len(stored)/2] ^= 4
		found = true
	}
	if !found {
		t.Fatal("not found in the file")
	}
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
