package s3store

import (
	"testing"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/archivetest"
)

func BenchmarkPut(b *testing.B) {
	archivetest.Bench(b, func(b *testing.B) archive.Store {
		startServer(b)
		return openStore(b, "a/")
	})
}

func BenchmarkSize(b *testing.B) {
	for _, kind := range []string{"Deployment", "ConfigMap", "Pod"} {
		b.Run(kind, func(b *testing.B) {
			archivetest.BenchSize(b, kind, func(b *testing.B) archive.Store {
				startServer(b)
				return openStore(b, "a/")
			}, func(b *testing.B) (size int64) {
				for _, o := range keys(b, "a/") {
					size += o.size
				}
				return size
			})
		})
	}
}
