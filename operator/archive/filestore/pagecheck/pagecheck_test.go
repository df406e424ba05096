package pagecheck

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

// file returns a file with branch pages, large values, an inline bucket and free pages.
func file(t testing.TB, entries int) []byte {
	t.Helper()
	name := filepath.Join(t.TempDir(), "test.db")
	db, err := bbolt.Open(name, 0o600, &bbolt.Options{PageSize: minPageSize, NoSync: true, InitialMmapSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	db.AllocSize = minPageSize
	for round := range 2 {
		err := db.Update(func(tx *bbolt.Tx) error {
			for _, bucket := range []string{"large", "many", "small"} {
				b, err := tx.CreateBucketIfNotExists([]byte(bucket))
				if err != nil {
					return err
				}
				number := map[string]int{"large": 3, "many": entries, "small": 2}[bucket]
				for i := range number {
					value := bytes.Repeat([]byte{byte(round)}, map[string]int{"large": 5000, "many": 20, "small": 5}[bucket])
					if err := b.Put(fmt.Appendf(nil, "key-%06d", i), value); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func check(data []byte) (Report, error) { return Check(bytes.NewReader(data), int64(len(data))) }

func TestCheck_AcceptsWhatBboltWrites(t *testing.T) {
	for _, entries := range []int{0, 1, 10, 1000, 20000} {
		if report, err := check(file(t, entries)); err != nil || report.Torn {
			t.Errorf("%d entries: %+v, %v", entries, report, err)
		}
	}
}

func TestCheck_FindsTruncation(t *testing.T) {
	data := file(t, 300)
	pages := binary.NativeEndian.Uint64(data[headerSize+40:])
	for n := 0; n < int(pages)*minPageSize; n += 97 {
		if _, err := check(data[:n]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("%d of %d bytes: error %v, want ErrDamaged", n, len(data), err)
		}
	}
}

func TestCheck_ReportsATornMetaPage(t *testing.T) {
	for _, at := range []int{headerSize + 20, minPageSize + headerSize + 20} {
		data := file(t, 10)
		data[at] ^= 0xFF
		if report, err := check(data); err != nil || !report.Torn {
			t.Errorf("byte %d: %+v, %v, want a torn write", at, report, err)
		}
	}
}

// TestCheck_BboltReadsWhatPasses flips bits all over the file: bbolt reads all that passes
// without panicking.
func TestCheck_BboltReadsWhatPasses(t *testing.T) {
	good := file(t, 60)
	dir := t.TempDir()
	found := 0
	for at := 0; at < len(good); at += 61 {
		data := bytes.Clone(good)
		data[at] ^= 1 << (at % 8)
		_, err := check(data)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("byte %d: error %v, want ErrDamaged", at, err)
			}
			found++
			continue
		}
		name := filepath.Join(dir, "flipped.db")
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		readAll(t, name, at)
	}
	if found == 0 {
		t.Error("no flipped bit was found")
	}
}

func readAll(t *testing.T, name string, at int) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("byte %d: bbolt panics: %v", at, p)
		}
	}()
	db, err := bbolt.Open(name, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatalf("byte %d: %v", at, err)
	}
	defer db.Close()
	err = db.Update(func(tx *bbolt.Tx) error {
		err := tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(_, _ []byte) error { return nil })
		})
		if err != nil {
			return err
		}
		b, err := tx.CreateBucketIfNotExists([]byte("large"))
		if err != nil {
			return err
		}
		return b.Put([]byte("key-000001"), bytes.Repeat([]byte("x"), 5000))
	})
	if err != nil {
		t.Errorf("byte %d: %v", at, err)
	}
}

func TestCheck_FindsACycle(t *testing.T) {
	data := file(t, 300)
	changed := 0
	for at := 2 * minPageSize; at < len(data); at += minPageSize {
		if p := data[at:]; binary.NativeEndian.Uint16(p[8:]) == branchFlag {
			binary.NativeEndian.PutUint64(p[headerSize+8:], binary.NativeEndian.Uint64(p)) // its first child is itself
			changed++
		}
	}
	if _, err := check(data); changed == 0 || !errors.Is(err, ErrDamaged) {
		t.Errorf("%d branch pages: error %v, want ErrDamaged", changed, err)
	}
}

func TestCheck_BoundsItsMemory(t *testing.T) {
	data := file(t, 10)
	for _, at := range []int{0, minPageSize} {
		m := data[at+headerSize:]
		binary.NativeEndian.PutUint64(m[40:], 1<<60)
		sum := fnv.New64a()
		_, _ = sum.Write(m[:metaSize-8])
		binary.NativeEndian.PutUint64(m[56:], sum.Sum64())
	}
	if _, err := check(data); !errors.Is(err, ErrDamaged) {
		t.Errorf("error %v, want ErrDamaged", err)
	}
}

func FuzzCheck(f *testing.F) {
	good := file(f, 100)
	f.Add(uint32(5000), []byte{1, 2, 3})
	f.Add(uint32(minPageSize), []byte{0})
	f.Fuzz(func(t *testing.T, at uint32, change []byte) {
		data := bytes.Clone(good)
		copy(data[int(at)%len(data):], change)
		for _, page := range []int{0, minPageSize} { // so that changed meta pages are read
			m := data[page+headerSize:]
			sum := fnv.New64a()
			_, _ = sum.Write(m[:metaSize-8])
			binary.NativeEndian.PutUint64(m[56:], sum.Sum64())
		}
		if _, err := check(data); err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("error %v, want ErrDamaged", err)
		}
	})
}
