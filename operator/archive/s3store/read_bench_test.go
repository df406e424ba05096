package s3store

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/archive"
)

// BenchmarkRecords reads the records of one object out of 200 segments, of 500 objects each: as they are, and as if they did not
// say which objects they are about. Nothing is in the reader's memory but the footers.
func BenchmarkRecords(b *testing.B) {
	startServer(b)
	s := openStore(b, "")
	began := time.Now()
	const segments, objects = 200, 500
	text := fmt.Appendf(nil, `{"message":%q}`, fmt.Sprintf("%0400d", 0))
	for i := range segments {
		batch := make([]archive.Record, objects)
		for j := range batch {
			n := i*objects + j
			batch[j] = archive.Record{Time: began.Add(time.Duration(n)), UID: types.UID(fmt.Sprintf("6f0b6c1e-0000-4000-8000-%012x", n)), JSON: text}
		}
		if err := s.Append(b.Context(), batch...); err != nil {
			b.Fatal(err)
		}
	}
	for name, filtered := range map[string]bool{"filtered": true, "all": false} {
		b.Run(name, func(b *testing.B) {
			r := openReader(b, "")
			v, err := r.current(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			for _, segment := range v.segments {
				if !filtered {
					segment.footer.RecordUIDs = nil
				}
			}
			for n := 0; b.Loop(); n++ {
				r.blocks = newBlocks()
				found, uid := 0, types.UID(fmt.Sprintf("6f0b6c1e-0000-4000-8000-%012x", n*7919%(segments*objects)))
				err := r.Records(b.Context(), uid, time.Time{}, time.Time{}, func(archive.Record) bool { found++; return true })
				if err != nil || found != 1 {
					b.Fatal(found, err)
				}
			}
		})
	}
}
