// Package recordlog keeps decision records durably, in the store of the archive.
//
// A slow or broken store never slows decisions: what waits to be stored is bounded, and what
// exceeds that is lost and counted. It also reads them back. It decides nothing.
package recordlog

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/record"
)

const (
	// maxWaiting is the maximum number of records that wait to be stored, and maxWaitingBytes
	// that of the bytes of their transcripts.
	maxWaiting, maxWaitingBytes = 20_000, 32 << 20

	// batch is the maximum number of records that are stored together, and pause the time in
	// which they gather.
	batch, pause = 1000, 50 * time.Millisecond

	// After a failure, a batch is tried again, with increasing delays.
	minRetry, maxRetry = time.Second, 30 * time.Second

	appendTimeout = 30 * time.Second

	// flushTimeout is how long a shutdown waits until what waits is stored.
	flushTimeout = 5 * time.Second

	reportInterval = time.Minute // between log lines about lost records
)

// Options configure a Log. All fields are required.
type Options struct {
	// Store returns the store, or why there is none at the moment.
	Store func() (archive.Store, error)
	Now   func() time.Time
	Log   logr.Logger
}

// Log stores decision records. Create it with New, and run it. Its methods may be called
// concurrently.
type Log struct {
	Options
	added chan struct{} // capacity 1: something waits

	mu      sync.Mutex // covers what follows
	waiting []record.Entry
	bytes   int // of the transcripts of waiting
	stats   Stats
}

// Stats are what has become of records since the start.
type Stats struct {
	Stored  int64
	Lost    int64 // were never stored
	Waiting int64
	Err     error // of the last attempt to store records; nil: it succeeded, or there was none
}

// New returns a Log.
func New(o Options) *Log { return &Log{Options: o, added: make(chan struct{}, 1)} }

// Stats returns what has become of records.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Waiting = int64(len(l.waiting))
	return s
}

// Add has a record stored. It does not block. If too much waits already, first transcripts and
// then whole records are lost.
func (l *Log) Add(e record.Entry) {
	size := e.TranscriptSize()
	l.mu.Lock()
	switch {
	case len(l.waiting) >= maxWaiting:
		l.stats.Lost++
		l.mu.Unlock()
		return
	case l.bytes+size > maxWaitingBytes:
		e, size = e.WithoutTranscript(), 0
	}
	l.waiting = append(l.waiting, e)
	l.bytes += size
	l.mu.Unlock()
	select {
	case l.added <- struct{}{}:
	default:
	}
}

// take removes the oldest records that wait.
func (l *Log) take() []record.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.waiting), batch)
	taken := l.waiting[:n:n]
	l.waiting = l.waiting[n:]
	if len(l.waiting) == 0 {
		l.waiting = nil
	}
	for _, e := range taken {
		l.bytes -= e.TranscriptSize()
	}
	return taken
}

// Run stores records until ctx ends, and then what waits.
func (l *Log) Run(ctx context.Context) error {
	reporter := reporter{log: l}
	for {
		select {
		case <-ctx.Done():
			return l.flush(context.WithoutCancel(ctx))
		case <-l.added:
		}
		if !sleep(ctx, pause) {
			return l.flush(context.WithoutCancel(ctx))
		}
		for entries := l.take(); len(entries) != 0; entries = l.take() {
			l.storeUntil(ctx, entries, &reporter)
		}
		reporter.report()
	}
}

// storeUntil stores records, however often it takes, until ctx ends. Then it tries once more.
func (l *Log) storeUntil(ctx context.Context, entries []record.Entry, r *reporter) {
	records := l.encode(entries)
	for retry := minRetry; ; retry = min(2*retry, maxRetry) {
		if err := l.store(context.WithoutCancel(ctx), records); err == nil {
			return
		}
		r.report()
		if !sleep(ctx, retry) {
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
			defer cancel()
			l.loseUnlessStored(last, records)
			return
		}
	}
}

// flush stores what waits, as far as that succeeds in time.
func (l *Log) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	for entries := l.take(); len(entries) != 0; entries = l.take() {
		l.loseUnlessStored(ctx, l.encode(entries))
	}
	return nil
}

func (l *Log) loseUnlessStored(ctx context.Context, records []archive.Record) {
	if err := l.store(ctx, records); err != nil {
		l.lose(len(records))
	}
}

func (l *Log) store(ctx context.Context, records []archive.Record) error {
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	store, err := l.Store()
	if err == nil {
		err = store.Append(ctx, records...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Err = err
	if err == nil {
		l.stats.Stored += int64(len(records))
		return nil
	}
	return fmt.Errorf("store %d records: %w", len(records), err)
}

// lose counts records that could not be stored.
func (l *Log) lose(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Lost += int64(n)
}

// encode returns records as they are stored. What is too large is stored without its transcript.
func (l *Log) encode(entries []record.Entry) []archive.Record {
	records := make([]archive.Record, 0, len(entries))
	for _, e := range entries {
		data, err := json.Marshal(e)
		if err != nil || len(data) > archive.MaxRecordBytes {
			data, err = json.Marshal(e.WithoutTranscript())
		}
		if err == nil && len(data) <= archive.MaxRecordBytes {
			records = append(records, archive.Record{Time: e.Time, UID: e.Object.UID, JSON: data})
		}
	}
	l.lose(len(entries) - len(records))
	return records
}

// reporter logs that records are lost, or that they can't be stored, from time to time.
type reporter struct {
	log  *Log
	last time.Time
	lost int64
	err  string
}

func (r *reporter) report() {
	s, now := r.log.Stats(), r.log.Now()
	text := ""
	if s.Err != nil {
		text = s.Err.Error()
	}
	if s.Lost == r.lost && text == r.err || now.Sub(r.last) < reportInterval && text != "" && s.Lost == r.lost {
		return
	}
	r.last, r.lost, r.err = now, s.Lost, text
	switch {
	case s.Err != nil:
		r.log.Log.Error(s.Err, "Storing decision records failed, retrying", "waiting", s.Waiting, "lost", s.Lost)
	default:
		r.log.Log.Info("Decision records are stored again", "lost", s.Lost)
	}
}

// sleep waits, and reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
