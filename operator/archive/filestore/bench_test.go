package filestore

import (
	"testing"

	"go.etcd.io/bbolt"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/archivetest"
)

func BenchmarkPut(b *testing.B) {
	archivetest.Bench(b, func(b *testing.B) archive.Store { return openStore(b, b.TempDir()) })
}

func BenchmarkSize(b *testing.B) {
	for _, kind := range []string{"Deployment", "ConfigMap", "Pod"} {
		b.Run(kind, func(b *testing.B) {
			var dir string
			archivetest.BenchSize(b, kind, func(b *testing.B) archive.Store {
				dir = b.TempDir()
				return openStore(b, dir)
			}, func(b *testing.B) int64 { return pagesInUse(b, dir) })
		})
	}
}

// pagesInUse returns the bytes of pages that are not free.
func pagesInUse(b *testing.B, dir string) int64 {
	s := openStore(b, dir)
	defer s.Close()
	var used int64
	err := s.view(func(tx *bbolt.Tx) error {
		for id := 0; ; id++ {
			page, err := tx.Page(id)
			if page == nil || err != nil {
				return err
			}
			if page.Type != "free" {
				used += int64(page.OverflowCount + 1)
			}
			id += page.OverflowCount
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	return used * int64(s.db.Info().PageSize)
}
