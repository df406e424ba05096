package writelimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/operator/writelimit"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// countWrites returns the number of admitted writes, with one attempt every millisecond.
func countWrites(l *writelimit.Limiter, owner, namespace string, from time.Time, duration time.Duration) (n int) {
	for at := from; at.Before(from.Add(duration)); at = at.Add(time.Millisecond) {
		if l.Take(owner, namespace, 1, at) == 0 {
			n++
		}
	}
	return n
}

func TestTake_AllowsABurstAndThenTheRate(t *testing.T) {
	l := writelimit.New(writelimit.Rate{PerSecond: 20, Burst: 200}, writelimit.Rate{PerSecond: 10, Burst: 100})
	if n := countWrites(l, "a", "", start, time.Minute); n < 1390 || n > 1402 {
		t.Errorf("a finalizer wrote %d times in a minute; want about 1400", n)
	}
	if n := countWrites(l, "b", "ns", start, time.Minute); n < 690 || n > 702 {
		t.Errorf("about the objects of a namespace there were %d writes in a minute; want about 700", n)
	}
}

func TestTake_ReturnsTheExactWait(t *testing.T) {
	l := writelimit.New(writelimit.Rate{PerSecond: 10, Burst: 5}, writelimit.Rate{PerSecond: 10, Burst: 5})
	if wait := l.Take("a", "ns", 5, start); wait != 0 {
		t.Fatalf("the burst waits %s", wait)
	}
	for range 3 { // rejected writes are not counted
		if wait := l.Take("a", "ns", 2, start); wait != 200*time.Millisecond {
			t.Fatalf("two more wait %s; want 200ms", wait)
		}
	}
	if wait := l.Take("a", "ns", 2, start.Add(200*time.Millisecond)); wait != 0 {
		t.Errorf("after that time, %s are left", wait)
	}
}

func TestTake_LimitsEachNamespace(t *testing.T) {
	l := writelimit.New(writelimit.Rate{PerSecond: 20, Burst: 20}, writelimit.Rate{PerSecond: 5, Burst: 5})
	busy, other := 0, 0
	for at := start; at.Before(start.Add(10 * time.Second)); at = at.Add(time.Millisecond) {
		if l.Take("cluster", "busy", 1, at) == 0 {
			busy++
		}
		if at.Sub(start)%(500*time.Millisecond) == 0 && l.Take("cluster", "other", 1, at) == 0 {
			other++
		}
	}
	if other != 20 || busy > 60 {
		t.Errorf("the other namespace got %d of 20 writes, while the busy one got %d", other, busy)
	}
}

func TestCharge_DelaysLaterWrites(t *testing.T) {
	l := writelimit.New(writelimit.Rate{PerSecond: 10, Burst: 10}, writelimit.Rate{PerSecond: 10, Burst: 10})
	l.Charge("a", "ns", 10, start)
	l.Charge("a", "ns", 10, start)
	if wait := l.Take("a", "ns", 1, start); wait != 1100*time.Millisecond {
		t.Errorf("the next write waits %s; want 1.1s", wait)
	}
	if wait := l.Take("a", "ns", 0, start); wait != 0 {
		t.Errorf("zero writes wait %s", wait)
	}
}

func TestLimiter_BoundsTheNumberOfBuckets(t *testing.T) {
	l := writelimit.New(writelimit.Rate{PerSecond: 1, Burst: 1}, writelimit.Rate{PerSecond: 1, Burst: 1})
	for i := range 50_000 {
		l.Take(fmt.Sprint(i), fmt.Sprint(i), 1, start.Add(time.Duration(i)*time.Millisecond))
	}
	if n := l.Len(); n > 10_000 {
		t.Errorf("%d buckets", n)
	}
}

func TestNilLimiter_LimitsNothing(t *testing.T) {
	var none *writelimit.Limiter
	none.Charge("a", "ns", 1000, start)
	if wait := none.Take("a", "ns", 1000, start); wait != 0 {
		t.Errorf("wait %s", wait)
	}
}
