// Package budget limits deletions in a sliding window. No interval of the window's length has more
// deletions than the limit, regardless of the number of processes that delete and of crashes.
//
// Each deletion needs a token. A process reserves tokens in batches before it sends requests. The
// batches are in a Ledger, which all processes share and replace by compare-and-swap, so a process that
// ends between reserving and deleting does not exceed the limit. A token counts from its reservation until
// one window after its deletion. Its outcome is written to the ledger with the next batch. A token without
// an outcome counts as used.
//
// Wall clocks may jump. A process measures elapsed time with its monotonic clock, and an entry of another
// process counts from when it was first observed. Only the entries that a process observes first are
// evaluated by their timestamps: there, wall clocks must agree within MaxSkew.
//
// The package does not read or write the ledger, and does not delete.
package budget

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

const (
	// Lifetime is how long a token may be used after its reservation.
	Lifetime = 5 * time.Second

	// MaxRequest is the maximum time from sending a DELETE until it takes effect, also if its response is
	// lost: the API server's default --request-timeout is 60 seconds.
	MaxRequest = 70 * time.Second

	// MaxSkew is the maximum difference between the wall clocks of two processes.
	MaxSkew = 5 * time.Second

	// MaxBatches and MaxBuckets bound a ledger.
	MaxBatches = 16
	MaxBuckets = 64

	buckets = 40 // in a window; with more buckets, tokens are available earlier
)

// Instant is a moment on the two clocks of a process.
type Instant struct {
	Wall time.Time     // written to the ledger
	Mono time.Duration // monotonic, since a fixed moment in the past
}

// Token allows one deletion. Its outcome is recorded with Settle.
type Token struct {
	batch   string
	expires time.Duration
}

// Expired reports whether the token may no longer be used. A request must be sent before it expires.
func (t Token) Expired(now Instant) bool { return now.Mono >= t.expires }

// Outcome is the outcome of a token.
type Outcome int

// The outcomes. The zero Outcome counts as a deletion for the longest time.
const (
	Uncertain Outcome = iota // a request was sent, and its result is unknown
	Deleted                  // the object was deleted, or is being deleted
	Unused                   // nothing was deleted: no request was sent, or it was refused
)

// Allocator allocates the tokens of a budget in one process. It must not be used concurrently.
type Allocator struct {
	id      string // of the process
	limit   Limit
	started bool
	batches int // reserved so far

	ledger  Ledger
	expires map[string]time.Duration // by key, on the monotonic clock

	own     map[string]*ownBatch
	deleted []time.Duration // times of deletions that are not in the ledger yet

	proposed *proposal
}

// ownBatch is a batch of this process.
type ownBatch struct {
	free    int // tokens that can be taken
	out     int // tokens that were taken and have no outcome, or an uncertain one
	expires time.Duration
}

// proposal is a ledger that is being written.
type proposal struct {
	ledger  Ledger
	batch   string // "": none
	count   int
	deleted int // of Allocator.deleted
	at      time.Duration
}

// NewAllocator returns the allocator of a process. The ID must be unique, also among former processes.
func NewAllocator(id string) *Allocator {
	return &Allocator{id: id, expires: map[string]time.Duration{}, own: map[string]*ownBatch{}}
}

// Observe sets the ledger that was read, and the limit. Now must be after the read has ended, since
// entries that are new count from now. Nothing is reserved before the first call.
func (a *Allocator) Observe(l Ledger, limit Limit, now Instant) {
	known := a.expires
	before, after := counts(a.ledger), counts(l)
	grown := limit.Window > a.limit.Window
	a.expires = map[string]time.Duration{}
	note := func(key string, at time.Time, keeps time.Duration) {
		end, is := known[key]
		switch {
		case !a.started:
			end = now.Mono + min(max(at.Sub(now.Wall)+keeps+MaxSkew, 0), keeps)
		case !is, grown, after[key] > before[key]:
			end = now.Mono + keeps // written between the last read and now
		}
		a.expires[key] = end
	}
	for _, batch := range l.Batches {
		note(batchKey(batch), batch.At, limit.keepsBatch())
	}
	for _, bucket := range l.Buckets {
		note(bucketKey(bucket), bucket.At, limit.keepsBucket())
	}
	for id, own := range a.own {
		if _, counts := after[batchKey(Batch{ID: id})]; !counts {
			own.free = 0 // other processes no longer count it
		}
	}
	a.ledger, a.limit, a.started, a.proposed = l.clone(), limit, true, nil
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

// Take returns a reserved token, if there is one.
func (a *Allocator) Take(now Instant) (Token, bool) {
	var id string
	for candidate, batch := range a.own {
		if batch.free > 0 && now.Mono < batch.expires && (id == "" || batch.expires < a.own[id].expires) {
			id = candidate
		}
	}
	if id == "" {
		return Token{}, false
	}
	batch := a.own[id]
	batch.free--
	batch.out++
	return Token{batch: id, expires: batch.expires}, true
}

// Settle records the outcome of a token.
func (a *Allocator) Settle(t Token, outcome Outcome, now Instant) {
	batch := a.own[t.batch]
	if batch == nil || batch.out == 0 {
		return
	}
	switch outcome {
	case Uncertain: // counts until its batch expires
	case Deleted:
		batch.out--
		a.deleted = append(a.deleted, now.Mono)
	case Unused:
		batch.out--
		batch.free++
	}
}

// Free returns how many tokens can be taken.
func (a *Allocator) Free(now Instant) (n int) {
	for _, batch := range a.own {
		if now.Mono < batch.expires {
			n += batch.free
		}
	}
	return n
}

// Unsettled reports whether there are outcomes that are not in the ledger yet.
func (a *Allocator) Unsettled(now Instant) bool {
	if len(a.deleted) != 0 {
		return true
	}
	for _, batch := range a.own {
		if batch.free != 0 && now.Mono >= batch.expires {
			return true
		}
	}
	return false
}

// Propose returns the next ledger: with the outcomes of tokens, without expired entries, and with a new batch
// of at most want tokens. Reserved is the number of tokens in that batch. The caller replaces the ledger by
// compare-and-swap. It then calls Commit on success, Observe after a conflict, or Abandon if the result is unknown.
func (a *Allocator) Propose(want int, now Instant) (l Ledger, reserved int) {
	p := a.newProposal(now)
	p.ledger.Batches = a.remainingBatches(now)
	p.ledger.Buckets = a.remainingBuckets(now)
	for _, at := range a.deleted {
		p.ledger.Buckets = a.addDeletion(p.ledger.Buckets, now.Wall.Add(at-now.Mono))
	}
	p.ledger.Buckets = bound(p.ledger.Buckets)
	return a.propose(p, want, now)
}

// ProposeResumed is Propose for a new window that begins now: former deletions do not count. Tokens that
// can still be used, or that this process has used with an unknown outcome, count.
func (a *Allocator) ProposeResumed(want int, now Instant) (l Ledger, reserved int) {
	p := a.newProposal(now)
	for _, batch := range a.remainingBatches(now) {
		left := a.expires[batchKey(batch)] - now.Mono
		if a.own[batch.ID] != nil || a.limit.keepsBatch()-left < Lifetime {
			p.ledger.Batches = append(p.ledger.Batches, batch)
		}
	}
	return a.propose(p, want, now)
}

func (a *Allocator) newProposal(now Instant) *proposal {
	return &proposal{at: now.Mono, deleted: len(a.deleted)}
}

// propose adds a new batch of at most want tokens.
func (a *Allocator) propose(p *proposal, want int, now Instant) (l Ledger, reserved int) {
	if !a.started {
		return Ledger{}, 0
	}
	room := max(a.limit.Max, 0) - p.ledger.Used()
	if reserved = max(min(want, room), 0); reserved > 0 && len(p.ledger.Batches) < MaxBatches {
		a.batches++
		p.batch, p.count = fmt.Sprintf("%s-%d", a.id, a.batches), reserved
		p.ledger.Batches = append(p.ledger.Batches, Batch{ID: p.batch, At: now.Wall, Count: reserved})
	} else {
		reserved = 0
	}
	a.proposed = p
	return p.ledger.clone(), reserved
}

// remainingBatches returns the batches that have not expired, with the current counts of this process's own.
func (a *Allocator) remainingBatches(now Instant) (all []Batch) {
	for _, batch := range a.ledger.Batches {
		own := a.own[batch.ID]
		if own != nil {
			batch.Count = own.out
			if now.Mono < own.expires {
				batch.Count += own.free
			}
		}
		if batch.Count > 0 && now.Mono < a.expires[batchKey(batch)] {
			all = append(all, batch)
		}
	}
	return all
}

func (a *Allocator) remainingBuckets(now Instant) (all []Bucket) {
	for _, bucket := range a.ledger.Buckets {
		if bucket.Count > 0 && now.Mono < a.expires[bucketKey(bucket)] {
			all = append(all, bucket)
		}
	}
	return all
}

// addDeletion adds a deletion to the bucket of its time.
func (a *Allocator) addDeletion(all []Bucket, at time.Time) []Bucket {
	for i := range all {
		if since := at.Sub(all[i].At); since >= 0 && since < a.limit.resolution() {
			all[i].Count = add(all[i].Count, 1)
			return all
		}
	}
	return append(all, Bucket{At: at.Truncate(time.Microsecond), Count: 1})
}

// bound sorts buckets, and merges the oldest if there are too many. Merged buckets expire with the later one.
func bound(all []Bucket) []Bucket {
	slices.SortFunc(all, func(a, b Bucket) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
	for len(all) > MaxBuckets {
		all[1].Count = add(all[0].Count, all[1].Count)
		all = all[1:]
	}
	return all
}

// Commit records that the proposed ledger was written. Its tokens can be taken afterwards.
func (a *Allocator) Commit() {
	p := a.proposed
	if p == nil {
		return
	}
	before := counts(a.ledger)
	known := a.expires
	a.expires = map[string]time.Duration{}
	for _, batch := range p.ledger.Batches {
		key := batchKey(batch)
		if a.expires[key] = known[key]; batch.ID == p.batch {
			a.expires[key] = p.at + a.limit.keepsBatch()
		}
	}
	for _, bucket := range p.ledger.Buckets {
		key := bucketKey(bucket)
		if a.expires[key] = known[key]; bucket.Count != before[key] {
			a.expires[key] = max(a.expires[key], p.at+a.limit.keepsBucket())
		}
	}
	a.deleted = a.deleted[p.deleted:]
	for id, own := range a.own {
		if _, counts := a.expires[batchKey(Batch{ID: id})]; !counts {
			delete(a.own, id)
			continue
		}
		if p.at >= own.expires {
			own.free = 0
		}
	}
	if p.batch != "" {
		a.own[p.batch] = &ownBatch{free: p.count, expires: p.at + Lifetime}
	}
	a.ledger, a.proposed = p.ledger, nil
}

// Abandon discards the proposed ledger if it is unknown whether it was written. Its tokens can't be taken. If it was
// written, they count as used.
func (a *Allocator) Abandon() { a.proposed = nil }

// Next returns the time until the next entry expires; false if there is no entry.
func (a *Allocator) Next(now Instant) (wait time.Duration, ok bool) {
	for _, end := range a.expires {
		if left := max(end-now.Mono, 0); !ok || left < wait {
			wait, ok = left, true
		}
	}
	return wait, ok
}
