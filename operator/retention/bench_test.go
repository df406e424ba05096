package retention_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/operator/candidate"
	"github.com/gleaner-dev/gleaner/operator/retain"
	"github.com/gleaner-dev/gleaner/operator/retention"
)

// BenchmarkSurvey has 100,000 Jobs, with a time to live and a number that stays of each label. It reports how long putting one takes
// and what it keeps in memory, and how long one evaluation of all takes.
func BenchmarkSurvey(b *testing.B) {
	const jobs = 100_000
	rule := retain.Rule{TTL: number(24 * time.Hour), KeepLast: number(3), Order: retain.ByFinish}
	s := retention.New(retention.Policy{
		Name: "jobs", Selects: all, Rule: rule, Options: candidate.Options{GroupBy: candidate.ByLabel, Label: "app"},
	})
	before, took := heap(), time.Duration(0)
	for i := range jobs {
		o := job(fmt.Sprintf("job-%d-with-a-name-of-usual-length", i), i%48)
		o.SetLabels(map[string]string{"app": fmt.Sprint("app-", i%1000)})
		began := time.Now()
		s.Put(o)
		took += time.Since(began)
	}
	kept := heap() - before
	for b.Loop() {
		if r := s.Evaluate(retention.Moment{Now: testTime}); len(r.Removals) < jobs/2 {
			b.Fatalf("%d removals", len(r.Removals))
		}
	}
	b.ReportMetric(float64(kept)/jobs, "B/object")
	b.ReportMetric(float64(took.Nanoseconds())/jobs, "ns/put")
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
