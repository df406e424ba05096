package budget_test

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/operator/budget"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// simulation simulates processes that share a ledger.
type simulation struct {
	*rand.Rand
	limit   budget.Limit
	now     time.Duration
	ledger  budget.Ledger
	version int

	processes []*process
	started   int
	pending   []request
	deletions []time.Duration
}

// request is a DELETE that was sent.
type request struct {
	from    *process
	token   budget.Token
	at      time.Duration // when it is carried out
	outcome budget.Outcome
}

type process struct {
	allocator *budget.Allocator
	skew      time.Duration // of the wall clock
}

func newSimulation(seed int64, processes int) *simulation {
	r := rand.New(rand.NewSource(seed))
	w := &simulation{Rand: r, limit: budget.Limit{Max: 1 + r.Intn(20), Window: time.Duration(10+r.Intn(600)) * time.Second}}
	for range processes {
		p := w.newProcess()
		p.allocator.Observe(w.ledger, w.limit, w.clock(p)) // as long as its clock is right
		w.processes = append(w.processes, p)
	}
	return w
}

// newProcess starts a process. The wall clocks of two processes differ by at most MaxSkew.
func (w *simulation) newProcess() *process {
	w.started++
	return &process{allocator: budget.NewAllocator(fmt.Sprint(w.started)), skew: time.Duration(w.Int63n(int64(budget.MaxSkew))) - budget.MaxSkew/2}
}

func (w *simulation) clock(p *process) budget.Instant {
	return budget.Instant{Wall: start.Add(w.now + p.skew), Mono: w.now}
}

// reserve reserves tokens, as an operator does, in the face of conflicts and lost responses.
func (w *simulation) reserve(p *process, want int) {
	p.allocator.Observe(w.ledger, w.limit, w.clock(p))
	read := w.version
	ledger, _ := p.allocator.Propose(want, w.clock(p))
	if w.Intn(5) == 0 { // meanwhile
		w.pass(time.Duration(w.Intn(2000)) * time.Millisecond)
		if other := w.processes[w.Intn(len(w.processes))]; other != p {
			w.reserve(other, 1+w.Intn(3))
		}
	}
	switch {
	case read != w.version:
		p.allocator.Observe(w.ledger, w.limit, w.clock(p))
	case w.Intn(10) == 0: // no response
		if w.Intn(2) == 0 {
			w.ledger, w.version = ledger, w.version+1
		}
		p.allocator.Abandon()
	default:
		w.ledger, w.version = ledger, w.version+1
		p.allocator.Commit()
	}
}

// send sends requests with the tokens that a process has.
func (w *simulation) send(p *process, most int) {
	for range most {
		token, ok := p.allocator.Take(w.clock(p))
		if !ok {
			return
		}
		r := request{from: p, token: token, at: w.now, outcome: budget.Deleted}
		switch w.Intn(8) {
		case 0:
			r.at, r.outcome = w.now+time.Duration(w.Int63n(int64(budget.MaxRequest))), budget.Uncertain
		case 1:
			r.outcome = budget.Unused
		case 2, 3:
			r.at = w.now + time.Duration(w.Intn(3000))*time.Millisecond
		}
		w.pending = append(w.pending, r)
	}
}

// pass lets time pass, and carries out requests.
func (w *simulation) pass(d time.Duration) {
	w.now += d
	w.pending = slices.DeleteFunc(w.pending, func(r request) bool {
		if r.at > w.now {
			return false
		}
		if r.outcome != budget.Unused {
			w.deletions = append(w.deletions, r.at)
		}
		r.from.allocator.Settle(r.token, r.outcome, w.clock(r.from))
		return true
	})
}

// most returns the largest number of deletions in an interval of the window's length.
func (w *simulation) most() (most int) {
	slices.Sort(w.deletions)
	from := 0
	for i, at := range w.deletions {
		for at-w.deletions[from] >= w.limit.Window {
			from++
		}
		most = max(most, i+1-from)
	}
	return most
}

func (w *simulation) run(steps int, disturb func(p *process, at int)) {
	for range steps {
		at := w.Intn(len(w.processes))
		p := w.processes[at]
		switch w.Intn(6) {
		case 0, 1:
			w.reserve(p, 1+w.Intn(10))
		case 2, 3:
			w.send(p, 1+w.Intn(5))
		case 4:
			w.pass(time.Duration(w.Intn(5000)) * time.Millisecond)
		case 5:
			if w.Intn(10) == 0 {
				disturb(p, at)
			}
		}
	}
	w.pass(budget.MaxRequest)
}

// Processes crash, responses are lost, requests are carried out late, and writes conflict.
func TestAllocator_NoWindowExceedsTheLimit_WhenProcessesCrash(t *testing.T) {
	total := 0
	for seed := range int64(150) {
		w := newSimulation(seed, 3)
		w.run(2000, func(_ *process, at int) { w.processes[at] = w.newProcess() })
		if most := w.most(); most > w.limit.Max {
			t.Fatalf("seed %d: %d deletions in %s, want at most %d", seed, most, w.limit.Window, w.limit.Max)
		}
		total += len(w.deletions)
	}
	if total < 5_000 {
		t.Errorf("only %d deletions, too few for a meaningful test", total)
	}
}

// The clocks of running processes jump, by up to a day.
func TestAllocator_NoWindowExceedsTheLimit_WhenClocksJump(t *testing.T) {
	total := 0
	for seed := range int64(150) {
		w := newSimulation(seed, 3)
		w.run(2000, func(p *process, _ int) { p.skew += time.Duration(w.Int63n(int64(48*time.Hour))) - 24*time.Hour })
		if most := w.most(); most > w.limit.Max {
			t.Fatalf("seed %d: %d deletions in %s, want at most %d", seed, most, w.limit.Window, w.limit.Max)
		}
		total += len(w.deletions)
	}
	if total < 5_000 {
		t.Errorf("only %d deletions, too few for a meaningful test", total)
	}
}

// The limit can nearly be reached.
func TestAllocator_AllowsNearlyTheLimit(t *testing.T) {
	for _, limit := range []budget.Limit{{Max: 100, Window: time.Minute}, {Max: 3, Window: 10 * time.Second}, {Max: 5000, Window: time.Hour}} {
		w := newSimulation(1, 1)
		w.limit = limit
		p := w.processes[0]
		for end := 10 * limit.Window; w.now < end; w.now += limit.Window / 200 {
			p.allocator.Observe(w.ledger, limit, w.clock(p))
			ledger, _ := p.allocator.Propose(max(limit.Max/10, 1), w.clock(p))
			w.ledger = ledger
			p.allocator.Commit()
			for token, ok := p.allocator.Take(w.clock(p)); ok; token, ok = p.allocator.Take(w.clock(p)) {
				w.deletions = append(w.deletions, w.now)
				p.allocator.Settle(token, budget.Deleted, w.clock(p))
			}
		}
		if most := w.most(); most > limit.Max || len(w.deletions) < limit.Max*9 {
			t.Errorf("%d in %s: %d in ten windows, and at most %d in one", limit.Max, limit.Window, len(w.deletions), most)
		}
		if len(w.ledger.Buckets) > budget.MaxBuckets || len(w.ledger.Batches) > budget.MaxBatches {
			t.Errorf("the ledger has %d buckets and %d batches", len(w.ledger.Buckets), len(w.ledger.Batches))
		}
	}
}

func at(d time.Duration) budget.Instant { return budget.Instant{Wall: start.Add(d), Mono: d} }

var minute = budget.Limit{Max: 10, Window: time.Minute}

// reserved returns an allocator with tokens, and the ledger.
func reserved(t *testing.T, want int) (*budget.Allocator, budget.Ledger) {
	t.Helper()
	b := budget.NewAllocator("a")
	b.Observe(budget.Ledger{}, minute, at(0))
	l, n := b.Propose(want, at(0))
	if n != want {
		t.Fatalf("%d tokens, want %d", n, want)
	}
	b.Commit()
	return b, l
}

func TestAllocator_ReservesNothing(t *testing.T) {
	_, full := reserved(t, 10)
	many := budget.Ledger{}
	for i := range budget.MaxBatches {
		many.Batches = append(many.Batches, budget.Batch{ID: fmt.Sprint(i), At: start, Count: 0})
	}
	for i := range many.Batches {
		many.Batches[i].Count = 1
	}
	for claim, observe := range map[string]func(*budget.Allocator){
		"before the ledger was read": func(*budget.Allocator) {},
		"without a limit":            func(b *budget.Allocator) { b.Observe(budget.Ledger{}, budget.Limit{Window: time.Minute}, at(0)) },
		"with a negative limit": func(b *budget.Allocator) {
			b.Observe(budget.Ledger{}, budget.Limit{Max: -5, Window: time.Minute}, at(0))
		},
		"when all is reserved": func(b *budget.Allocator) { b.Observe(full, minute, at(0)) },
		"above numbers that overflow": func(b *budget.Allocator) {
			b.Observe(budget.Ledger{Buckets: []budget.Bucket{{At: start, Count: 1 << 62}, {At: start, Count: 1 << 62}, {At: start, Count: -(1 << 62)}}}, minute, at(0))
		},
		"beside too many batches": func(b *budget.Allocator) { b.Observe(many, budget.Limit{Max: 100, Window: time.Minute}, at(0)) },
	} {
		b := budget.NewAllocator("b")
		observe(b)
		if _, n := b.Propose(5, at(0)); n != 0 {
			t.Errorf("%s: %d tokens are reserved", claim, n)
		}
		if _, ok := b.Take(at(0)); ok {
			t.Errorf("%s: a token is there", claim)
		}
	}
}

func TestAllocator_TokensAreUsedOnlyForTheirLifetime(t *testing.T) {
	b, _ := reserved(t, 2)
	token, ok := b.Take(at(budget.Lifetime - 1))
	if !ok || token.Expired(at(budget.Lifetime-1)) || !token.Expired(at(budget.Lifetime)) {
		t.Errorf("token %+v: %t", token, ok)
	}
	if _, ok := b.Take(at(budget.Lifetime)); ok || b.Free(at(budget.Lifetime)) != 0 {
		t.Error("a token is there after its lifetime")
	}
}

func TestAllocator_WhatWasNotProposedOrNotWrittenIsNotThere(t *testing.T) {
	b := budget.NewAllocator("a")
	b.Observe(budget.Ledger{}, minute, at(0))
	b.Commit()
	if _, n := b.Propose(3, at(0)); n != 3 {
		t.Errorf("%d tokens", n)
	}
	b.Abandon()
	b.Commit()
	if _, ok := b.Take(at(0)); ok {
		t.Error("a token is there that may not be written")
	}
}

// Other processes no longer count a batch that was removed.
func TestAllocator_TokensOfABatchThatIsGone_AreNotUsed(t *testing.T) {
	b, _ := reserved(t, 2)
	b.Observe(budget.Ledger{}, minute, at(time.Second))
	if _, ok := b.Take(at(time.Second)); ok {
		t.Error("a token is there")
	}
}

func TestAllocator_SettledTokensCountFromTheirDeletion(t *testing.T) {
	b, _ := reserved(t, 3)
	for _, outcome := range []budget.Outcome{budget.Deleted, budget.Unused, budget.Uncertain} {
		token, ok := b.Take(at(0))
		if !ok {
			t.Fatal("no token")
		}
		b.Settle(token, outcome, at(time.Second))
		b.Settle(budget.Token{}, outcome, at(time.Second)) // a token of no batch
	}
	if !b.Unsettled(at(time.Second)) {
		t.Error("there is nothing to tell")
	}
	l, n := b.Propose(0, at(time.Second))
	b.Commit()
	if n != 0 || len(l.Buckets) != 1 || l.Buckets[0].Count != 1 || l.Used() != 3 {
		t.Errorf("%d reserved, ledger %+v", n, l)
	}
	used := func(d time.Duration) int {
		l, _ := b.Propose(0, at(d))
		return l.Used()
	}
	const uncertain = budget.Lifetime + budget.MaxRequest + time.Minute
	for d, want := range map[time.Duration]int{
		budget.Lifetime: 2, 61 * time.Second: 2, 65 * time.Second: 1, uncertain - 1: 1, uncertain: 0,
	} {
		if got := used(d); got != want {
			t.Errorf("after %s: %d are used, want %d", d, got, want)
		}
	}
	if wait, any := b.Next(at(time.Second)); !any || wait < time.Minute || wait > 62*time.Second {
		t.Errorf("the next one is free after %s, %t", wait, any)
	}
}

// A process that starts goes by the times that are written; later it goes by what it has seen.
func TestAllocator_AnotherProcessCountsWhatIsWritten(t *testing.T) {
	_, l := reserved(t, 10)
	const keeps = budget.Lifetime + budget.MaxRequest + time.Minute
	for claim, test := range map[string]struct {
		at   budget.Instant
		want int
	}{
		"at once":                       {at(0), 0},
		"nearly at the end":             {at(keeps), 0},
		"at the end, with the skew":     {at(keeps + budget.MaxSkew), 10},
		"by a clock that is behind":     {at(-24 * time.Hour), 0},
		"far in the future, at a start": {at(24 * time.Hour), 10},
	} {
		b := budget.NewAllocator("b")
		b.Observe(l, minute, test.at)
		if _, n := b.Propose(10, test.at); n != test.want {
			t.Errorf("%s: %d tokens, want %d", claim, n, test.want)
		}
	}
	b := budget.NewAllocator("b")
	b.Observe(budget.Ledger{}, minute, at(0))
	jumped := budget.Instant{Wall: start.Add(24 * time.Hour), Mono: time.Second}
	b.Observe(l, minute, jumped)
	if _, n := b.Propose(10, jumped); n != 0 {
		t.Errorf("after a jump of the clock: %d tokens", n)
	}
}

// A clock that jumps may add a deletion to a bucket of long ago.
func TestAllocator_ABucketThatGrows_CountsAgain(t *testing.T) {
	b := budget.NewAllocator("b")
	ledger := func(count int) budget.Ledger {
		return budget.Ledger{Buckets: []budget.Bucket{{At: start, Count: count}}}
	}
	b.Observe(ledger(1), minute, at(0))
	b.Observe(ledger(2), minute, at(50*time.Second))
	for d, want := range map[time.Duration]int{50 * time.Second: 8, 110 * time.Second: 8, 112 * time.Second: 10} {
		if _, n := b.Propose(10, at(d)); n != want {
			t.Errorf("after %s: %d tokens, want %d", d, n, want)
		}
	}
}

func BenchmarkAllocator(b *testing.B) {
	w := newSimulation(1, 1)
	w.limit = budget.Limit{Max: 1 << 40, Window: time.Hour}
	p := w.processes[0]
	for b.Loop() {
		w.now += time.Millisecond
		token, ok := p.allocator.Take(w.clock(p))
		if !ok {
			p.allocator.Observe(w.ledger, w.limit, w.clock(p))
			w.ledger, _ = p.allocator.Propose(100, w.clock(p))
			p.allocator.Commit()
			continue
		}
		p.allocator.Settle(token, budget.Deleted, w.clock(p))
	}
}
