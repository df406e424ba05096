// Package budget limits deletions in a sliding window: in no interval of the window's length are more
// objects deleted than the limit, whatever number of processes delete, and whichever of them crash.
//
// A deletion needs a token. Tokens are reserved in batches, in a Ledger that all processes share and
// replace by compare-and-swap, before a request is sent; so the budget is right at any moment,
// also if a process ends between counting and deleting. A token counts from its reservation until a
// window after its deletion. What became of a token is told to the ledger with the next batch; if that
// is never told, it counts as used.
//
// Clocks may be wrong. Within a process, elapsed time is measured by a monotonic clock, and what others
// have written counts from when it was seen. Only what a process finds when it starts is judged by
// the time that is written there: the clocks of processes must then agree within MaxSkew.
package budget

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	// Lifetime is how long after its reservation a token may be used.
	Lifetime = 5 * time.Second

	// MaxRequest is how long after it was sent a DELETE may still be carried out, whatever its sender knows of
	// it: an API server ends a request after 60 seconds.
	MaxRequest = 70 * time.Second

	// MaxSkew is by how much the clocks of two processes may differ.
	MaxSkew = 5 * time.Second

	// MaxBatches and MaxBuckets bound a ledger.
	MaxBatches = 16
	MaxBuckets = 64

	buckets = 40 // of a window; the more, the sooner a token is free again
)

// Instant is a moment on the two clocks of a process.
type Instant struct {
	Wall time.Time     // what other processes see of it
	Mono time.Duration // since any moment before; never jumps
}

// Limit is what a budget allows.
type Limit struct {
	Max    int           // deletions; zero or less: none
	Window time.Duration // positive
}

// Ledger is what processes share. The zero Ledger has no deletions.
type Ledger struct {
	Batches []Batch  // not settled
	Buckets []Bucket // oldest first
}

// Batch is a number of tokens that a process has reserved.
type Batch struct {
	ID    string // unique
	At    time.Time
	Count int // tokens of which the ledger does not know what became
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

// add adds numbers that someone else may have written. A negative one counts as none, and a sum is not negative.
func add(n, count int) int {
	if count > math.MaxInt-n {
		return math.MaxInt
	}
	return n + max(count, 0)
}

// keepsBatch is how long after its reservation a batch that is not settled counts.
func (l Limit) keepsBatch() time.Duration { return Lifetime + MaxRequest + l.Window }

// keepsBucket is how long after its first deletion a bucket counts.
func (l Limit) keepsBucket() time.Duration { return l.Window + l.resolution() }

// resolution is the length of a bucket.
func (l Limit) resolution() time.Duration { return l.Window / buckets }

// Token allows one deletion. It is given back with Settle.
type Token struct {
	batch   string
	expires time.Duration
}

// Expired reports whether the token may no longer be used. A request that is sent has to be sent before.
func (t Token) Expired(now Instant) bool { return now.Mono >= t.expires }

// Outcome is what became of a token.
type Outcome int

// The outcomes. The zero Outcome counts as a deletion for the longest time.
const (
	Uncertain Outcome = iota // a request was sent, and its result is not known
	Deleted                  // the object was deleted, or is being deleted
	Unused                   // nothing was deleted: no request was sent, or it was refused
)

// Book is a process's part in a budget. It must not be used concurrently.
type Book struct {
	id      string // of the process
	limit   Limit
	started bool
	batches int // reserved so far

	ledger  Ledger
	expires map[string]time.Duration // by key, on the monotonic clock

	own     map[string]*ownBatch
	deleted []time.Duration // deletions that the ledger does not have, by their times

	proposed *proposal
}

// ownBatch is a batch of this process.
type ownBatch struct {
	free    int // tokens to take
	out     int // tokens of which is not known what became, and those whose outcome is uncertain
	expires time.Duration
}

// proposal is a ledger that is being written.
type proposal struct {
	ledger  Ledger
	batch   string // "": none
	count   int
	deleted int // of Book.deleted
	at      time.Duration
}

// NewBook returns the book of a process, whose ID no other process has or had.
func NewBook(id string) *Book {
	return &Book{id: id, expires: map[string]time.Duration{}, own: map[string]*ownBatch{}}
}

// Observe tells what the ledger is, from a read that began now or later, and the limit. Nothing is
// reserved before.
func (b *Book) Observe(l Ledger, limit Limit, now Instant) {
	known := b.expires
	before, after := counts(b.ledger), counts(l)
	grown := limit.Window > b.limit.Window
	b.expires = map[string]time.Duration{}
	note := func(key string, at time.Time, keeps time.Duration) {
		end, is := known[key]
		switch {
		case !b.started:
			end = now.Mono + min(max(at.Sub(now.Wall)+keeps+MaxSkew, 0), keeps)
		case !is, grown, after[key] > before[key]:
			end = now.Mono + keeps // it was written since the last read, and at the latest now
		}
		b.expires[key] = end
	}
	for _, batch := range l.Batches {
		note(batchKey(batch), batch.At, limit.keepsBatch())
	}
	for _, bucket := range l.Buckets {
		note(bucketKey(bucket), bucket.At, limit.keepsBucket())
	}
	for id, own := range b.own {
		if _, counts := after[batchKey(Batch{ID: id})]; !counts {
			own.free = 0 // the process that has removed it no longer counts it
		}
	}
	b.ledger, b.limit, b.started, b.proposed = l.clone(), limit, true, nil
}

func batchKey(b Batch) string   { return "batch " + b.ID }
func bucketKey(b Bucket) string { return "bucket " + b.At.UTC().Format(time.RFC3339Nano) }

// counts returns the numbers of a ledger by key.
func counts(l Ledger) map[string]int {
	all := map[string]int{}
	for _, b := range l.Batches {
		all[batchKey(b)] = add(all[batchKey(b)], b.Count)
	}
	for _, b := range l.Buckets {
		all[bucketKey(b)] = add(all[bucketKey(b)], b.Count)
	}
	return all
}

// Take takes a token of those that are reserved.
func (b *Book) Take(now Instant) (Token, bool) {
	var id string
	for candidate, batch := range b.own {
		if batch.free > 0 && now.Mono < batch.expires && (id == "" || batch.expires < b.own[id].expires) {
			id = candidate
		}
	}
	if id == "" {
		return Token{}, false
	}
	batch := b.own[id]
	batch.free--
	batch.out++
	return Token{batch: id, expires: batch.expires}, true
}

// Settle tells what became of a token.
func (b *Book) Settle(t Token, outcome Outcome, now Instant) {
	batch := b.own[t.batch]
	if batch == nil || batch.out == 0 {
		return
	}
	switch outcome {
	case Uncertain: // it counts with its batch, for as long as that may be carried out
	case Deleted:
		batch.out--
		b.deleted = append(b.deleted, now.Mono)
	case Unused:
		batch.out--
		batch.free++
	}
}

// Free returns how many tokens can be taken.
func (b *Book) Free(now Instant) (n int) {
	for _, batch := range b.own {
		if now.Mono < batch.expires {
			n += batch.free
		}
	}
	return n
}

// Unsettled reports whether the ledger can be told what became of tokens.
func (b *Book) Unsettled(now Instant) bool {
	if len(b.deleted) != 0 {
		return true
	}
	for _, batch := range b.own {
		if batch.free != 0 && now.Mono >= batch.expires {
			return true
		}
	}
	return false
}

// Propose returns the ledger that is to replace the one that was observed: with what is known of earlier
// tokens, without what has left the window, and with a batch of up to want tokens. The caller replaces it by
// compare-and-swap, and then calls Commit, or Observe after a conflict, or Abandon if it is not
// known whether it was replaced. Reserved is how many tokens there are in the new batch.
func (b *Book) Propose(want int, now Instant) (l Ledger, reserved int) {
	if !b.started {
		return Ledger{}, 0
	}
	p := &proposal{at: now.Mono, deleted: len(b.deleted)}
	p.ledger.Batches = b.remainingBatches(now)
	p.ledger.Buckets = b.remainingBuckets(now)
	for _, at := range b.deleted {
		p.ledger.Buckets = b.addDeletion(p.ledger.Buckets, now.Wall.Add(at-now.Mono))
	}
	p.ledger.Buckets = bound(p.ledger.Buckets)
	room := max(b.limit.Max, 0) - p.ledger.Used()
	if reserved = max(min(want, room), 0); reserved > 0 && len(p.ledger.Batches) < MaxBatches {
		b.batches++
		p.batch, p.count = fmt.Sprintf("%s-%d", b.id, b.batches), reserved
		p.ledger.Batches = append(p.ledger.Batches, Batch{ID: p.batch, At: now.Wall, Count: reserved})
	} else {
		reserved = 0
	}
	b.proposed = p
	return p.ledger.clone(), reserved
}

// remainingBatches returns the batches that still count, with what is known of the own ones.
func (b *Book) remainingBatches(now Instant) (all []Batch) {
	for _, batch := range b.ledger.Batches {
		own := b.own[batch.ID]
		if own != nil {
			batch.Count = own.out
			if now.Mono < own.expires {
				batch.Count += own.free
			}
		}
		if batch.Count > 0 && now.Mono < b.expires[batchKey(batch)] {
			all = append(all, batch)
		}
	}
	return all
}

func (b *Book) remainingBuckets(now Instant) (all []Bucket) {
	for _, bucket := range b.ledger.Buckets {
		if bucket.Count > 0 && now.Mono < b.expires[bucketKey(bucket)] {
			all = append(all, bucket)
		}
	}
	return all
}

// addDeletion adds a deletion to the bucket of its time.
func (b *Book) addDeletion(all []Bucket, at time.Time) []Bucket {
	for i := range all {
		if since := at.Sub(all[i].At); since >= 0 && since < b.limit.resolution() {
			all[i].Count = add(all[i].Count, 1)
			return all
		}
	}
	return append(all, Bucket{At: at.Truncate(time.Microsecond), Count: 1})
}

// bound sorts buckets, and merges the oldest if there are too many: they count as long as the later one.
func bound(all []Bucket) []Bucket {
	slices.SortFunc(all, func(a, b Bucket) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
	for len(all) > MaxBuckets {
		all[1].Count = add(all[0].Count, all[1].Count)
		all = all[1:]
	}
	return all
}

// Commit tells that the proposed ledger has replaced the observed one.
func (b *Book) Commit() {
	p := b.proposed
	if p == nil {
		return
	}
	before := counts(b.ledger)
	known := b.expires
	b.expires = map[string]time.Duration{}
	for _, batch := range p.ledger.Batches {
		key := batchKey(batch)
		if b.expires[key] = known[key]; batch.ID == p.batch {
			b.expires[key] = p.at + b.limit.keepsBatch()
		}
	}
	for _, bucket := range p.ledger.Buckets {
		key := bucketKey(bucket)
		if b.expires[key] = known[key]; bucket.Count != before[key] {
			b.expires[key] = max(b.expires[key], p.at+b.limit.keepsBucket())
		}
	}
	b.deleted = b.deleted[p.deleted:]
	for id, own := range b.own {
		if _, counts := b.expires[batchKey(Batch{ID: id})]; !counts {
			delete(b.own, id)
			continue
		}
		if p.at >= own.expires {
			own.free = 0
		}
	}
	if p.batch != "" {
		b.own[p.batch] = &ownBatch{free: p.count, expires: p.at + Lifetime}
	}
	b.ledger, b.proposed = p.ledger, nil
}

// Abandon tells that it is not known whether the proposed ledger has replaced the observed one. Nothing of
// it is used; Observe tells what is so.
func (b *Book) Abandon() { b.proposed = nil }

// Next returns when the first of what counts now has left the window; false if nothing counts.
func (b *Book) Next(now Instant) (wait time.Duration, any bool) {
	for _, end := range b.expires {
		if left := max(end-now.Mono, 0); !any || left < wait {
			wait, any = left, true
		}
	}
	return wait, any
}
