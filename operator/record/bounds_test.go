package record_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/policies"
)

func TestAStoreSaysWhatItKeepsAndKeepsNoMoreThanItsBounds(t *testing.T) {
	for claim, c := range map[string]struct {
		bounds               record.Bounds
		entries, transcripts int
	}{
		"a zero Bounds is what an operator keeps":  {record.Bounds{}, 3, 3 * 1000},
		"the oldest entry makes room":              {record.Bounds{Entries: 2}, 2, 2 * 1000},
		"the oldest transcripts make room":         {record.Bounds{Transcripts: 5000}, 3, 1000},
		"with less than none, there are none":      {record.Bounds{Transcripts: -1}, 3, 0},
		"one byte is not enough for any":           {record.Bounds{Transcripts: 1}, 3, 0},
		"the bounds of entries go for transcripts": {record.Bounds{Entries: 1, Transcripts: 1 << 20}, 1, 1000},
	} {
		t.Run(claim, func(t *testing.T) {
			s := record.NewStore(c.bounds)
			for _, uid := range []types.UID{"a", "b", "c"} {
				s.Add(record.Entry{Object: record.Object{UID: uid}, Action: record.Delete, Asked: []record.Asked{{
					Exchanges: []policies.Exchange{{Fault: strings.Repeat("x", 3000)}},
				}}})
			}
			entries, transcripts := s.Size()
			if entries != c.entries || (transcripts == 0) != (c.transcripts == 0) || transcripts < c.transcripts {
				t.Errorf("%d entries and %d bytes of transcripts: want %d, and at least %d", entries, transcripts, c.entries, c.transcripts)
			}
			if limit := c.bounds.Transcripts; limit > 0 && transcripts > limit {
				t.Errorf("%d bytes of transcripts are more than %d", transcripts, limit)
			}
		})
	}
}
