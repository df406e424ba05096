// Package pausestore reads Pauses and ClusterPauses, publishes them as one value on every replica,
// and writes their status where this replica leads.
//
// What a pause stops is decided elsewhere: see package pause.
package pausestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/livelist"
	"github.com/gleaner-dev/gleaner/operator/pause"
)

const (
	// interval is how often pauses are read although no event has announced a change, in case that
	// a watch has ended without notice. Reading takes at most a share of 1/maxShare of the time.
	interval = 5 * time.Second
	maxShare = 20

	// absentInterval is the same while their types are not served.
	absentInterval = time.Minute

	// maxMissed is how many intervals may pass without an answer. After that, pauses are not known.
	maxMissed = 3

	readTimeout = 10 * time.Second
	minRetry    = time.Second
)

// Options configure a Source. All fields are required.
type Options struct {
	Client client.Client // reads live

	Absent  livelist.Absent
	Leading func() bool // reports whether this replica writes status
	Now     func() time.Time
	Log     logr.Logger
}

// Source has the pauses. Create it with New, and run it. Its methods may be called concurrently,
// except for Run.
type Source struct {
	options Options
	trigger chan struct{} // capacity 1: something has changed
	latest  latest.Value[*pause.Set]

	mu      sync.Mutex // covers what follows
	expires time.Time  // when the pauses are not known any more; zero: they do not expire
	failure error      // why the pauses are not known, once they have expired
	failing bool       // the last read has failed
}

// New returns a Source that has read nothing yet.
func New(o Options) *Source {
	s := &Source{options: o, trigger: make(chan struct{}, 1), failure: errors.New("they have not been read yet")}
	s.Refresh()
	return s
}

// Current returns the pauses, including those that have ended; an error, for people, if they
// are not known.
func (s *Source) Current() (*pause.Set, error) {
	set, ok := s.latest.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ok || !s.expires.IsZero() && !s.options.Now().Before(s.expires) {
		return nil, fmt.Errorf("whether this is paused is not known: %w", s.failure)
	}
	return set, nil
}

// Changed returns a channel that is closed when pauses are published after this call, or one
// ends by itself.
func (s *Source) Changed() <-chan struct{} { return s.latest.Changed() }

// Refresh has the pauses read now.
func (s *Source) Refresh() {
	select {
	case s.trigger <- struct{}{}:
	default:
	}
}

// Apply implements watch.Sink: events trigger a read and are not used otherwise.
func (s *Source) Apply(events ...graph.Event) {
	for _, e := range events {
		if concerns(e) {
			s.Refresh()
			return
		}
	}
}

func concerns(e graph.Event) bool {
	is := func(kind schema.GroupKind) bool {
		return kind.Group == v1alpha1.GroupVersion.Group && (kind.Kind == v1alpha1.KindPause || kind.Kind == v1alpha1.KindClusterPause)
	}
	switch e := e.(type) {
	case graph.Seen:
		return is(e.Object.Kind.GroupKind())
	case graph.Deleted:
		return is(e.Object.Kind.GroupKind())
	case graph.Relisted:
		return is(e.Kind)
	case graph.TypeGone:
		return is(e.Kind)
	default:
		return false
	}
}

// Run reads and publishes pauses until ctx ends.
func (s *Source) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-s.trigger:
		}
		timer.Reset(s.read(ctx))
	}
}

// read reads and publishes the pauses, and returns when to read them again.
func (s *Source) read(ctx context.Context) time.Duration {
	began := s.options.Now()
	limited, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	all, served, err := Read(limited, s.options.Client, s.options.Absent)
	now := s.options.Now()
	if err != nil {
		s.fail(ctx, err)
		return minRetry
	}
	again := absentInterval
	if served {
		again = max(interval, maxShare*now.Sub(began))
	}
	s.publish(all, served, began.Add(maxMissed*again))
	if s.options.Leading() {
		if err := writeStatus(limited, s.options.Client, all, now); err != nil {
			s.options.Log.Error(err, "Could not write the status of pauses, retrying")
		}
	}
	set, _ := s.latest.Load()
	if end := set.NextEnd(now); !end.IsZero() {
		again = min(again, end.Sub(now))
	}
	return again
}

func (s *Source) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	again := s.failing
	s.failing, s.failure = true, err
	s.mu.Unlock()
	if again {
		s.options.Log.V(1).Info("Could not read pauses, retrying", "error", err.Error())
		return
	}
	s.options.Log.Error(err, "Could not read pauses, retrying until they are read", "delay", minRetry)
}

func (s *Source) publish(all []Resource, served bool, expires time.Time) {
	pauses := make([]pause.Pause, len(all))
	for i, r := range all {
		pauses[i] = r.Pause()
	}
	s.mu.Lock()
	s.failing, s.failure, s.expires = false, nil, time.Time{}
	if served {
		s.expires, s.failure = expires, errors.New("the API server does not answer")
	}
	s.mu.Unlock()
	s.latest.Store(pause.NewSet(pauses))
}
