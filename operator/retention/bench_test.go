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

// BenchmarkSurvey decides about 100,000 Jobs with a time to live and a number that stays of each label, without the lists that
// they come from. It reports the memory that is held for each Job.
func BenchmarkSurvey(b *testing.B) {
	const jobs = 100_000
	rule := retain.Rule{TTL: number(24 * time.Hour), KeepLast: number(3), Order: retain.ByFinish}
	policy := retention.Policy{Name: "jobs", Selects: all, Rule: rule, Options: candidate.Options{GroupBy: candidate.ByLabel, Label: "app"}}
	page := 500
	for b.Loop() {
		before := heap()
		s := retention.New(policy)
		for at := 0; at < jobs; at += page {
			b.StopTimer()
			listed := make([]func(), page)
			for i := range listed {
				o := job(fmt.Sprintf("job-%d-with-a-name-of-usual-length", at+i), (at+i)%48)
				o.SetLabels(map[string]string{"app": fmt.Sprint("app-", (at+i)%1000)})
				listed[i] = func() { s.Put(o) }
			}
			b.StartTimer()
			for _, add := range listed {
				add()
			}
		}
		r := s.Evaluate(retention.Moment{Now: testTime})
		b.StopTimer()
		b.ReportMetric(float64(len(r.Removals)), "removals")
		b.ReportMetric(float64(heap()-before)/jobs, "B/object")
		runtime.KeepAlive(r)
		b.StartTimer()
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
