package run

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gleaner-dev/gleaner/operator/graphstore"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// What was decided before a replica led is in the records of another one, which may be gone.
func TestRecords_ReachBackToWhenTheReplicaBeganToLead(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now := start
	op := &Operator{records: record.NewStore(record.Limits{MaxEntries: 1}), store: graphstore.New(func() time.Time { return now })}
	if since := (view{op}).recordedSince(); !since.IsZero() {
		t.Errorf("a follower has all records since %s", since)
	}
	now = start.Add(time.Hour)
	op.store.Lead()
	if since := (view{op}).recordedSince(); !since.Equal(now) {
		t.Errorf("a leader of %s has all records since %s", now, since)
	}
	for i := range 2 {
		op.records.Add(record.Entry{Time: now.Add(time.Duration(i+1) * time.Minute), Object: record.Object{Name: "a"}, Action: record.Delete})
	}
	if since, want := (view{op}).recordedSince(), now.Add(time.Minute); !since.Equal(want) {
		t.Errorf("after the record of %s was evicted: since %s", want, since)
	}
	op.store.Follow()
	if since := (view{op}).recordedSince(); !since.IsZero() {
		t.Errorf("a replica that has lost the lease has all records since %s", since)
	}
}

func TestAtMostEvery_ReadsOncePerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		read := atMostEvery(2*time.Second, func() int { n++; return n })
		for range 100 {
			if got := read(); got != 1 {
				t.Fatalf("read %d times at once", got)
			}
		}
		time.Sleep(2 * time.Second)
		if got := read(); got != 2 {
			t.Errorf("read %d times after the interval", got)
		}
	})
}
