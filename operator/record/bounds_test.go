package record_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/policies"
)

func TestStore_StaysWithinItsLimits(t *testing.T) {
	for claim, c := range map[string]struct {
		bounds               record.Limits
		entries, transcripts int
	}{
		"zero means defaults":                        {record.Limits{}, 3, 3 * 1000},
		"the oldest entry is evicted":                {record.Limits{MaxEntries: 2}, 2, 2 * 1000},
		"the oldest transcripts are evicted":         {record.Limits{MaxTranscriptBytes: 5000}, 3, 1000},
		"a negative limit keeps no transcripts":      {record.Limits{MaxTranscriptBytes: -1}, 3, 0},
		"one byte is not enough for any":             {record.Limits{MaxTranscriptBytes: 1}, 3, 0},
		"evicted entries take their transcripts too": {record.Limits{MaxEntries: 1, MaxTranscriptBytes: 1 << 20}, 1, 1000},
	} {
		t.Run(claim, func(t *testing.T) {
			s := record.NewStore(c.bounds)
			for _, uid := range []types.UID{"a", "b", "c"} {
				s.Add(record.Entry{Object: record.Object{UID: uid}, Action: record.Delete, Evaluations: []record.Evaluation{{
					Exchanges: []policies.Exchange{{Fault: strings.Repeat("x", 3000)}},
				}}})
			}
			entries, transcripts := s.Size()
			if entries != c.entries || (transcripts == 0) != (c.transcripts == 0) || transcripts < c.transcripts {
				t.Errorf("%d entries and %d bytes of transcripts: want %d, and at least %d", entries, transcripts, c.entries, c.transcripts)
			}
			if limit := c.bounds.MaxTranscriptBytes; limit > 0 && transcripts > limit {
				t.Errorf("%d bytes of transcripts are more than %d", transcripts, limit)
			}
		})
	}
}

// An object may have thousands of owners, and there are thousands of records.
func TestOwnersOf_LimitsOwnersAndPrefersDecisiveOnes(t *testing.T) {
	var f decide.Facts
	var refs []metav1.OwnerReference
	for i := range 8000 {
		o := decide.Owner{Reference: metav1.OwnerReference{Kind: "ConfigMap", Name: fmt.Sprint("owner-", i)}, Status: decide.Absent}
		if i%1000 == 999 {
			o.Status = decide.Present
		}
		f.Owners, refs = append(f.Owners, o), append(refs, o.Reference)
	}
	owners := record.OwnersOf(f)
	if len(owners) != 20 || owners[0].Object.Name != "owner-999" || owners[8].Object.Name != "owner-0" || f.Owners[0].Reference.Name != "owner-0" {
		t.Errorf("%d are named, first %s, then %s", len(owners), owners[0].Object.Name, owners[8].Object.Name)
	}
	if _, detail := record.ActionOf(decide.DropReferences{References: refs}); !strings.HasSuffix(detail, ", ConfigMap owner-19 and 7980 more") {
		t.Errorf("references are dropped to %s", detail)
	}
}
