// Package livesource reads some of Gleaner's custom resources again whenever they change, and publishes what was
// read on every replica. A value is not valid for longer than a few intervals: after that it is not known, since a
// watch may have ended without notice.
//
// It does not interpret the resources: see Options.Read.
package livesource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/latest"
)

const (
	// interval is how often resources are read although no event has announced a change. Reading takes at most
	// a share of 1/maxShare of the time.
	interval = 5 * time.Second
	maxShare = 20

	// absentInterval is the same while their types are not served.
	absentInterval = time.Minute

	// maxMissed is how many intervals may pass without a response. After that, the value is not known.
	maxMissed = 3

	readTimeout = 10 * time.Second
	minRetry    = time.Second
)

// Options configure a Source. All fields are required, unless stated otherwise.
type Options[T any] struct {
	Name  string   // of the resources, in the plural, for logs
	Kinds []string // of Gleaner's resources whose events trigger a read

	// Read reads the resources, and reports whether their types are served.
	Read func(context.Context) (value T, served bool, err error)

	// Published is called after a value was published. It returns when the value has to be read again
	// without an event; zero means at the next interval. Optional.
	Published func(ctx context.Context, value T) time.Time

	// Ignore reports whether an event about an object shows nothing new. Optional.
	Ignore func(graph.Object) bool

	Now func() time.Time
	Log logr.Logger
}

// Source has the value that was read last. Create it with New, and run it. Its methods may be called concurrently,
// except for Run.
type Source[T any] struct {
	options Options[T]
	trigger chan struct{} // capacity 1: something has changed
	latest  latest.Value[T]

	mu      sync.Mutex // covers what follows
	expires time.Time  // when the value is no longer known; zero: it does not expire
	failure error      // why the value is not known, once it has expired
	failing bool       // the last read has failed
}

// New returns a Source that has read nothing yet.
func New[T any](o Options[T]) *Source[T] {
	s := &Source[T]{options: o, trigger: make(chan struct{}, 1), failure: errors.New("they have not been read yet")}
	s.Refresh()
	return s
}

// Current returns the value; an error if it is not known.
func (s *Source[T]) Current() (T, error) {
	value, ok := s.latest.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ok || !s.expires.IsZero() && !s.options.Now().Before(s.expires) {
		var unknown T
		return unknown, s.failure
	}
	return value, nil
}

// Changed returns a channel that is closed when a value is published after this call.
func (s *Source[T]) Changed() <-chan struct{} { return s.latest.Changed() }

// Refresh has the resources read now.
func (s *Source[T]) Refresh() {
	select {
	case s.trigger <- struct{}{}:
	default:
	}
}

// Apply implements watch.Sink: events trigger a read and are not used otherwise.
func (s *Source[T]) Apply(events ...graph.Event) {
	if slices.ContainsFunc(events, s.concerns) {
		s.Refresh()
	}
}

func (s *Source[T]) concerns(e graph.Event) bool {
	is := func(kind schema.GroupKind) bool {
		return kind.Group == v1alpha1.GroupVersion.Group && slices.Contains(s.options.Kinds, kind.Kind)
	}
	switch e := e.(type) {
	case graph.Seen:
		return is(e.Object.Kind.GroupKind()) && (s.options.Ignore == nil || !s.options.Ignore(e.Object))
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

// Run reads and publishes until ctx ends.
func (s *Source[T]) Run(ctx context.Context) error {
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

// read reads and publishes the value, and returns when to read it again.
func (s *Source[T]) read(ctx context.Context) time.Duration {
	began := s.options.Now()
	limited, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	value, served, err := s.options.Read(limited)
	now := s.options.Now()
	if err != nil {
		s.fail(ctx, err)
		return minRetry
	}
	again := absentInterval
	if served {
		again = max(interval, maxShare*now.Sub(began))
	}
	s.publish(value, served, began.Add(maxMissed*again))
	if s.options.Published != nil {
		if next := s.options.Published(limited, value); !next.IsZero() {
			again = min(again, next.Sub(now))
		}
	}
	return again
}

func (s *Source[T]) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	again := s.failing
	s.failing, s.failure = true, err
	s.mu.Unlock()
	if again {
		s.options.Log.V(1).Info(fmt.Sprintf("Could not read %s, retrying", s.options.Name), "error", err.Error())
		return
	}
	s.options.Log.Error(err, fmt.Sprintf("Could not read %s, retrying until they are read", s.options.Name), "delay", minRetry)
}

func (s *Source[T]) publish(value T, served bool, expires time.Time) {
	s.mu.Lock()
	s.failing, s.failure, s.expires = false, nil, time.Time{}
	if served {
		s.expires, s.failure = expires, errors.New("the API server does not answer")
	}
	s.mu.Unlock()
	s.latest.Store(value)
}
