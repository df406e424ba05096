package loop

import (
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/operator/record"
)

// What was decided before a replica led is in the records of another one, which may be gone.
func TestRecords_ReachBackToWhenTheReplicaBeganToLead(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now := start
	l := unconnected(Options{Records: record.Bounds{Entries: 1}}, func() time.Time { return now })
	if since := l.recordedSince(); !since.IsZero() {
		t.Errorf("a follower has all records since %s", since)
	}
	now = start.Add(time.Hour)
	l.known.lead()
	if since := l.recordedSince(); !since.Equal(now) {
		t.Errorf("a leader of %s has all records since %s", now, since)
	}
	for i := range 2 {
		l.records.Add(record.Entry{Time: now.Add(time.Duration(i+1) * time.Minute), Object: record.Object{Name: "a"}, Action: record.Delete})
	}
	if since, want := l.recordedSince(), now.Add(time.Minute); !since.Equal(want) {
		t.Errorf("after the record of %s was evicted: since %s", want, since)
	}
	l.known.follow()
	if since := l.recordedSince(); !since.IsZero() {
		t.Errorf("a replica that has lost the lease has all records since %s", since)
	}
}
