package finalize

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
)

// workers is how many objects of one finalizer are worked on at once. Each finalizer
// has workers of its own, so that a slow one holds up no other.
const workers = 8

// server serves one finalizer.
type server struct {
	*Runner
	entry  string
	queue  workqueue.TypedDelayingInterface[key]
	looks  chan struct{} // capacity 1: have all objects looked at
	cancel context.CancelFunc
	ended  sync.WaitGroup

	retries workqueue.TypedRateLimiter[key] // of what is written to objects that are not being deleted

	mu       sync.Mutex // covers what follows
	current  served
	removed  time.Time // when its resource was first seen to be deleted
	tracks   map[types.UID]*track
	released int
	carriers int
	counted  bool
	account  accountSeen
}

// track is what is known of one object that waits for the finalizer. It is lost with
// the process, but for what is remembered on the object.
type track struct {
	key    key
	object graph.Object

	asked    *policies.Finalizer // that it was asked by last; nil if something else was said since
	face     string              // of the object then, see fingerprint
	last     time.Time           // when that was
	wrote    bool                // it had objects written then
	hurried  int                 // how often in a row a change followed on that
	due      time.Time           // when it is to be asked again; zero: when something changes
	attempt  int
	memory   memory // where the object can't have it
	failures int    // in a row
	limited  int    // how often in a row it was not to be written yet

	flight flight

	reason   Reason
	message  string
	since    time.Time // for which it has had the reason
	deadline time.Time // zero: none
	deleted  time.Time // zero: it was not read yet
}

// startServer serves a finalizer until it is stopped.
func startServer(ctx context.Context, r *Runner, f served) *server {
	ctx, cancel := context.WithCancel(ctx)
	s := newServer(r, f)
	s.cancel = cancel
	for range workers {
		s.ended.Go(func() {
			for s.next(ctx) {
			}
		})
	}
	s.ended.Go(func() { s.keepLooking(ctx) })
	return s
}

func newServer(r *Runner, f served) *server {
	s := &server{
		Runner: r, entry: f.Entry, current: f, tracks: map[types.UID]*track{}, looks: make(chan struct{}, 1),
		queue:   workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[key]{}),
		retries: workqueue.NewTypedItemExponentialFailureRateLimiter[key](lookAgain, lookAtLast),
	}
	if f.Removed {
		s.removed = r.Now()
	}
	return s
}

// stop ends serving, and waits for work in hand.
func (s *server) stop() {
	s.cancel()
	s.queue.ShutDown()
	s.ended.Wait()
}

// next works on one object. It reports whether there is more to come.
func (s *server) next(ctx context.Context) bool {
	k, shutdown := s.queue.Get()
	if shutdown {
		return false
	}
	defer s.queue.Done(k)
	again := lookAgain // it may lead again before anybody has noticed that it did not
	if !s.over(ctx) {
		again = s.visit(ctx, k)
	}
	if again == 0 {
		s.retries.Forget(k)
		return true
	}
	s.queue.AddAfter(k, again)
	return true
}

// over reports whether nothing is to be done any more: somebody else may be doing it.
func (s *server) over(ctx context.Context) bool { return ctx.Err() != nil || !s.Leads() }

func (s *server) add(k key) { s.queue.Add(k) }

// await looks at an object that waits for the finalizer.
func (s *server) await(k key) {
	s.tracked(k)
	s.queue.Add(k)
}

// wake looks at an object again that waits for the finalizer.
func (s *server) wake(uid types.UID) {
	s.mu.Lock()
	t, ok := s.tracks[uid]
	s.mu.Unlock()
	if ok {
		s.queue.Add(t.key)
	}
}

// wakeAll looks again at the objects that wait for the finalizer, of some kind.
func (s *server) wakeAll(which func(*track) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tracks {
		if which(t) {
			s.queue.Add(t.key)
		}
	}
}

func every(*track) bool { return true }

// gone forgets an object that a watch has shown to be gone, as most are that the
// finalizer was taken off just now.
func (s *server) gone(uid types.UID) {
	s.mu.Lock()
	_, ok := s.tracks[uid]
	delete(s.tracks, uid)
	s.mu.Unlock()
	if ok {
		s.Changed()
	}
}

// finalizer is the one in force.
func (s *server) finalizer() served {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// replace has another reading of the resource served. It reports whether anything
// has changed; then all that wait are looked at again.
func (s *server) replace(f served) bool {
	s.mu.Lock()
	changed := !f.Same(s.current.Finalizer) || f.shared != s.current.shared
	if f.Removed && !s.current.Removed {
		s.counted, s.removed = false, s.Now()
	}
	s.current = f
	s.mu.Unlock()
	if changed {
		s.wakeAll(every)
	}
	return changed
}

// waits reports whether an object waits for the finalizer.
func (s *server) waits(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.tracks[uid]
	return ok
}

// tracked returns what is known of an object, and starts on it if that is nothing.
func (s *server) tracked(k key) track {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.tracks[k.uid]; ok {
		return *t
	}
	t := &track{key: k, since: s.Now()}
	s.tracks[k.uid] = t
	s.Changed()
	return *t
}

// keep keeps what is known of an object by now, without what is read again anyway.
func (s *server) keep(t track) {
	t.object.Owners, t.object.Finalizers = nil, nil
	s.mu.Lock()
	was := s.tracks[t.key.uid]
	if was == nil || was.reason != t.reason {
		t.since = s.Now()
	}
	changed := was == nil || was.reason != t.reason || was.message != t.message || !was.due.Equal(t.due)
	s.tracks[t.key.uid] = &t
	s.mu.Unlock()
	if changed {
		s.Changed()
	}
}

// drop forgets an object. The last one may be what the removal of the resource waits
// for.
func (s *server) drop(k key, released bool) {
	s.mu.Lock()
	_, ok := s.tracks[k.uid]
	delete(s.tracks, k.uid)
	if released {
		s.released++
	}
	last := ok && len(s.tracks) == 0 && s.current.Removed
	s.mu.Unlock()
	if ok || released {
		s.Changed()
	}
	if last {
		s.look()
	}
}
