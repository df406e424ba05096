package archivestore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archivestore"
	"github.com/gleaner-dev/gleaner/operator/gate"
)

// fakeStore counts what is done with it.
type fakeStore struct {
	archive.Store
	mu      sync.Mutex
	expired int
	closed  bool
	err     error // of Append
}

func (s *fakeStore) Put(context.Context, ...archive.Entry) error { return s.err }

func (s *fakeStore) Append(context.Context, ...archive.Record) error { return s.err }

func (s *fakeStore) Expire(context.Context, time.Time, archive.Limits) (entries, records int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired++
	return 0, 0, nil
}

func (s *fakeStore) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

func (s *fakeStore) state() (expired int, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.expired, s.closed
}

// world runs a Source until the test ends or stop is called.
type world struct {
	*testing.T
	*archivestore.Source
	gate gate.Gate
	stop func()

	mu     sync.Mutex // covers what follows
	opened []*fakeStore
	errs   []error // of the next calls of Open
}

func (w *world) open(context.Context) (archive.Store, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.errs) != 0 {
		err := w.errs[0]
		w.errs = w.errs[1:]
		return nil, err
	}
	s := &fakeStore{}
	w.opened = append(w.opened, s)
	return s, nil
}

// store returns the n-th store that was opened, once it was.
func (w *world) store(n int) (s *fakeStore) {
	w.Helper()
	w.eventually(func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.opened) > n {
			s = w.opened[n]
		}
		return s != nil
	})
	return s
}

func (w *world) eventually(is func() bool) {
	w.Helper()
	tick, timeout := time.NewTicker(5*time.Millisecond), time.After(20*time.Second)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-timeout:
			w.Fatal("timeout")
		}
	}
}

func newWorld(t *testing.T, opened archive.Store) *world {
	t.Helper()
	w := &world{T: t}
	o := archivestore.Options{
		Opened: opened, Open: w.open, Leading: w.gate.IsLeading, Changed: w.gate.Changed,
		Interval: 10 * time.Millisecond, Now: time.Now, Log: testr.New(t),
	}
	w.Source = archivestore.New(o)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Source.Run(ctx) })
	w.stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(w.stop)
	return w
}

func (w *world) hasStore() bool {
	s, err := w.Store()
	if (s == nil) != (err != nil) {
		w.Errorf("the store is %v, and the error %v", s, err)
	}
	return err == nil
}

func TestStore_IsOpenWhileThisReplicaLeads(t *testing.T) {
	w := newWorld(t, nil)
	if w.hasStore() {
		t.Error("a follower has it open")
	}
	w.gate.Lead()
	first := w.store(0)
	w.eventually(w.hasStore)
	w.eventually(func() bool { n, _ := first.state(); return n > 1 })
	w.gate.Follow()
	if !w.hasStore() {
		t.Error("records that wait can't be stored any more")
	}
	w.eventually(func() bool { _, closed := first.state(); return closed && !w.hasStore() })
	w.gate.Lead()
	second := w.store(1)
	w.eventually(w.hasStore)
	w.stop()
	if _, closed := second.state(); !closed {
		t.Error("it was not closed at the end")
	}
}

func TestStore_IsOpenedAgain_AfterAFailure(t *testing.T) {
	w := newWorld(t, nil)
	w.mu.Lock()
	w.errs = []error{errors.New("no such bucket")}
	w.mu.Unlock()
	w.gate.Lead()
	w.eventually(func() bool { _, err := w.Store(); return err != nil && err.Error() == "no such bucket" })
	w.store(0)
	w.eventually(w.hasStore)
}

func TestStore_IsOpenedAgain_AfterAnotherWriterHasTakenOver(t *testing.T) {
	w := newWorld(t, nil)
	w.gate.Lead()
	w.store(0).err = archive.ErrFenced
	w.eventually(w.hasStore)
	store, _ := w.Store()
	if err := store.Append(t.Context(), archive.Record{}); !errors.Is(err, archive.ErrFenced) {
		t.Fatalf("the error is %v", err)
	}
	w.store(1)
	w.eventually(func() bool { _, closed := w.opened[0].state(); return closed && w.hasStore() })
}

func TestStore_ThatWasOpenAtTheStart_StaysOpenInAFollower(t *testing.T) {
	s := &fakeStore{}
	w := newWorld(t, s)
	w.eventually(func() bool { n, _ := s.state(); return n > 1 })
	if !w.hasStore() {
		t.Error("it is not open")
	}
	w.stop()
	if _, closed := s.state(); !closed {
		t.Error("it was not closed at the end")
	}
}

func (w *world) healthBecomes(want archivestore.Health) {
	w.Helper()
	var got archivestore.Health
	defer func() {
		if w.Failed() {
			w.Logf("the health is %+v, want %+v", got, want)
		}
	}()
	w.eventually(func() bool { got, _ = w.Health().Load(); return got == want })
}

func TestHealth_SaysWhatWasSeen(t *testing.T) {
	w := newWorld(t, nil)
	w.healthBecomes(archivestore.Health{}) // of a follower
	w.mu.Lock()
	w.errs = []error{errors.New("no such bucket")}
	w.mu.Unlock()
	w.gate.Lead()
	w.healthBecomes(archivestore.Health{State: archivestore.Failing, Error: "no such bucket"})
	w.gate.Follow()
	w.healthBecomes(archivestore.Health{})
}

// That records are accepted, and old entries are removed, says little about entries.
func TestHealth_AfterAnEntryWasNotAccepted_IsFailingUntilOneIs(t *testing.T) {
	s := &fakeStore{}
	w := newWorld(t, s)
	w.healthBecomes(archivestore.Health{State: archivestore.Ready}) // after the first removal of what has expired
	store, err := w.Store()
	if err != nil {
		t.Fatal(err)
	}
	s.err = errors.New("disk full")
	if err := store.Put(t.Context(), archive.Entry{}); err == nil {
		t.Fatal("it was accepted")
	}
	w.healthBecomes(archivestore.Health{State: archivestore.Failing, Error: "disk full"})
	n, _ := s.state()
	w.eventually(func() bool { now, _ := s.state(); return now > n+2 })
	w.healthBecomes(archivestore.Health{State: archivestore.Failing, Error: "disk full"})
	s.err = archive.ErrTooLarge
	_ = store.Put(t.Context(), archive.Entry{}) // is not the store's fault
	w.healthBecomes(archivestore.Health{State: archivestore.Failing, Error: "disk full"})
	s.err = nil
	if err := store.Put(t.Context(), archive.Entry{}); err != nil {
		t.Fatal(err)
	}
	w.healthBecomes(archivestore.Health{State: archivestore.Ready})
}
