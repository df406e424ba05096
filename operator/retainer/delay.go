package retainer

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/retention"
)

// delayBounds are the upper bounds of the buckets of Delays, in seconds.
var delayBounds = [...]float64{1, 5, 15, 60, 300, 900, 3600, 14400, 86400}

// Delays is a histogram of the time that removals took, from the evaluation that found the object due until it was removed. It includes
// waits for pauses, budgets and policies with the hook retain. The zero value is an empty one.
type Delays struct {
	Count   uint64
	Sum     time.Duration
	buckets [len(delayBounds)]uint64 // not cumulative
}

// Buckets returns the cumulative numbers of removals by their upper bounds in seconds, as Prometheus has them.
func (d Delays) Buckets() map[float64]uint64 {
	all, n := map[float64]uint64{}, uint64(0)
	for i, bound := range delayBounds {
		n += d.buckets[i]
		all[bound] = n
	}
	return all
}

func (d *Delays) add(took time.Duration) {
	took = max(took, 0)
	d.Count++
	d.Sum += took
	for i, bound := range delayBounds {
		if took.Seconds() <= bound {
			d.buckets[i]++
			return
		}
	}
}

// dueSince is when objects were found to be due.
type dueSince map[types.UID]time.Time

// update takes an evaluation over.
func (s dueSince) update(due []retention.Decision, now time.Time) {
	is := make(map[types.UID]bool, len(due))
	for _, d := range due {
		is[d.UID] = true
		if _, known := s[d.UID]; !known {
			s[d.UID] = now
		}
	}
	maps.DeleteFunc(s, func(uid types.UID, _ time.Time) bool { return !is[uid] })
}
