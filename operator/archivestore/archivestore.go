// Package archivestore has the archive's store open while this replica may write it, and
// removes what has expired.
//
// A store in a folder is open from the start until the end. One that several replicas share is
// open in the leader only, and is opened again after another writer has taken over by mistake.
// It decides nothing about what is archived.
package archivestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/latest"
)

const (
	// After a failure, the store is opened again, with increasing delays.
	minRetry, maxRetry = time.Second, 30 * time.Second

	// failureTTL is how long the store counts as failing after it did not accept an entry, if none
	// was tried since.
	failureTTL = 5 * time.Minute

	// lingering is how long the store stays open after this replica has led: records wait for milliseconds before they
	// are stored.
	lingering = time.Second

	openTimeout   = time.Minute
	expireTimeout = 10 * time.Minute
)

// Options configure a Source. All fields are required, unless stated otherwise.
type Options struct {
	// Opened is a store that is open already, and is closed when Run ends. If it is nil, Open
	// opens one whenever this replica comes to lead.
	Opened archive.Store
	Open   func(context.Context) (archive.Store, error)

	Leading func() bool
	Changed func() <-chan struct{} // is closed when Leading may return something else

	Limits   archive.Limits
	Interval time.Duration // between removals of what has expired
	Now      func() time.Time
	Log      logr.Logger
}

// State is whether a store accepts entries, as was observed last.
type State uint8

// The states. The zero State is that of a store that was not tried yet.
const (
	Starting State = iota
	Ready          // it has accepted something, and nothing failed since
	Failing
)

// Health is what was observed of the store last.
type Health struct {
	State State
	Error string // of Failing, for people: what is wrong and what to do
}

// Source has the store. Create it with New, and run it. Its methods may be called concurrently.
type Source struct {
	Options
	lost   chan struct{} // capacity 1: another writer has taken over
	health latest.Value[Health]

	mu     sync.Mutex // covers what follows
	store  archive.Store
	why    error     // why there is no store
	failed time.Time // when an entry was not accepted, unless one was since
}

// errNotOpen is why there is no store at first.
var errNotOpen = errors.New("the archive is not open yet")

// New returns a Source.
func New(o Options) *Source {
	s := &Source{Options: o, lost: make(chan struct{}, 1), why: errNotOpen}
	if o.Opened != nil {
		s.publish(o.Opened, nil)
	}
	return s
}

// Store returns the store, or why there is none at the moment.
func (s *Source) Store() (archive.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store, s.why
}

// Health returns what was observed of the store last.
func (s *Source) Health() *latest.Value[Health] { return &s.health }

func (s *Source) publish(store archive.Store, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store, s.why, s.failed = nil, why, time.Time{}
	if store != nil {
		s.store = watched{store, s}
	}
}

// observe publishes the Health after something was written. That something else than entries is
// accepted says little while entries are not: a full disk has room for a record.
func (s *Source) observe(entries bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, now := Health{State: Ready}, s.Now()
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, archive.ErrTooLarge):
		return // that is not the store's fault
	case err != nil:
		h = Health{Failing, err.Error()}
		if entries {
			s.failed = now
		}
	case entries:
		s.failed = time.Time{}
	case now.Sub(s.failed) < failureTTL:
		return
	}
	if known, ok := s.health.Load(); !ok || known != h {
		s.health.Store(h)
	}
}

// Run opens the store, and removes what has expired, until ctx ends.
func (s *Source) Run(ctx context.Context) error {
	if s.Opened != nil {
		s.use(ctx, s.Opened)
		s.close(s.Opened)
		return nil
	}
	for retry := minRetry; ctx.Err() == nil; {
		changed := s.Changed()
		if !s.Leading() {
			s.publish(nil, errors.New("this replica does not lead"))
			s.health.Store(Health{})
			wait(ctx, changed, maxRetry)
			continue
		}
		store, err := s.open(ctx)
		if err != nil {
			s.publish(nil, err)
			s.observe(true, err)
			s.Log.Error(err, "Opening the archive failed, retrying", "delay", retry)
			wait(ctx, changed, retry)
			retry = min(2*retry, maxRetry)
			continue
		}
		retry = minRetry
		s.publish(store, nil)
		s.useWhileLeading(ctx, store)
		s.publish(nil, errNotOpen)
		s.close(store)
	}
	return nil
}

func (s *Source) open(ctx context.Context) (archive.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return s.Open(ctx)
}

func (s *Source) close(store archive.Store) {
	if err := store.Close(); err != nil {
		s.Log.Error(err, "Closing the archive failed")
	}
}

// useWhileLeading removes what has expired while this replica leads, unless another one takes
// over.
func (s *Source) useWhileLeading(ctx context.Context, store archive.Store) {
	ctx, cancel := context.WithCancel(ctx)
	var using sync.WaitGroup
	using.Go(func() { s.use(ctx, store) })
	defer using.Wait()
	defer cancel()
	for {
		changed := s.Changed()
		if !s.Leading() {
			wait(ctx, nil, lingering) // a writer that takes over fences this one
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-s.lost:
			s.Log.Info("Another writer has taken over the archive: opening it again")
			return
		case <-changed:
		case <-time.After(maxRetry): // that a lease has lapsed is not published
		}
	}
}

// use removes what has expired until ctx ends.
func (s *Source) use(ctx context.Context, store archive.Store) {
	tick := time.NewTicker(s.Interval)
	defer tick.Stop()
	for {
		s.expire(ctx, store)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Source) expire(ctx context.Context, store archive.Store) {
	limited, cancel := context.WithTimeout(ctx, expireTimeout)
	defer cancel()
	entries, records, err := watched{store, s}.Expire(limited, s.Now(), s.Limits)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		s.Log.Error(err, "Removing expired entries from the archive failed, retrying", "delay", s.Interval)
	case entries+records > 0:
		s.Log.Info("Removed expired entries from the archive", "entries", entries, "records", records)
	}
}

// wait waits for a change, and at most for some time.
func wait(ctx context.Context, changed <-chan struct{}, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-changed:
	case <-timer.C:
	}
}

// watched is a store whose writer may be fenced.
type watched struct {
	archive.Store
	source *Source
}

// Put implements archive.Store.
func (w watched) Put(ctx context.Context, entries ...archive.Entry) error {
	return w.check(true, w.Store.Put(ctx, entries...))
}

// Append implements archive.Store.
func (w watched) Append(ctx context.Context, records ...archive.Record) error {
	return w.check(false, w.Store.Append(ctx, records...))
}

// Expire implements archive.Store.
func (w watched) Expire(ctx context.Context, now time.Time, limits archive.Limits) (entries, records int64, err error) {
	entries, records, err = w.Store.Expire(ctx, now, limits)
	return entries, records, w.check(false, err)
}

func (w watched) check(entries bool, err error) error {
	w.source.observe(entries, err)
	if errors.Is(err, archive.ErrFenced) {
		select {
		case w.source.lost <- struct{}{}:
		default:
		}
		return fmt.Errorf("%w: it is opened again if this replica still leads", err)
	}
	return err
}
