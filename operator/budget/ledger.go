package budget

import (
	"math"
	"slices"
	"time"
)

// Limit is what a budget allows.
type Limit struct {
	Max    int           // deletions; zero or less: none
	Window time.Duration // positive
}

// Ledger is the shared state of a budget. The zero Ledger has no deletions.
type Ledger struct {
	Batches []Batch  // with tokens that are not settled
	Buckets []Bucket // oldest first
}

// Batch is a number of tokens that a process has reserved.
type Batch struct {
	ID    string // unique
	At    time.Time
	Count int // tokens that are not settled
}

// Bucket is a number of deletions.
type Bucket struct {
	At    time.Time // of the first one; the others followed within a fortieth of the window
	Count int
}

// clone returns a copy that shares nothing.
func (l Ledger) clone() Ledger {
	return Ledger{Batches: slices.Clone(l.Batches), Buckets: slices.Clone(l.Buckets)}
}

// Used returns how many deletions the ledger counts.
func (l Ledger) Used() int {
	n := 0
	for _, b := range l.Batches {
		n = add(n, b.Count)
	}
	for _, b := range l.Buckets {
		n = add(n, b.Count)
	}
	return n
}

// add adds a count from a ledger, which is untrusted: negative counts are ignored, and the sum does not overflow.
func add(n, count int) int {
	if count > math.MaxInt-n {
		return math.MaxInt
	}
	return n + max(count, 0)
}

// keepsBatch is how long a batch counts after its reservation if it is not settled.
func (l Limit) keepsBatch() time.Duration { return Lifetime + MaxRequest + l.Window }

// keepsBucket is how long a bucket counts after its first deletion.
func (l Limit) keepsBucket() time.Duration { return l.Window + l.resolution() }

// resolution is the length of a bucket.
func (l Limit) resolution() time.Duration { return l.Window / buckets }
