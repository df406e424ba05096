package finalize

import (
	"cmp"
	"context"
	"slices"
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

	mu       sync.Mutex // covers what follows
	current  *policies.Finalizer
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

	asked    *policies.Finalizer // that it was asked by last
	face     string              // of the object then, see fingerprint
	last     time.Time           // when that was
	due      time.Time           // when it is to be asked again; zero: when something changes
	attempt  int
	memory   memory // where the object can't have it
	failures int    // in a row

	reason   Reason
	message  string
	since    time.Time // for which it has had the reason
	deadline time.Time // zero: none
}

// startServer serves a finalizer until it is stopped.
func startServer(ctx context.Context, r *Runner, f *policies.Finalizer) *server {
	ctx, cancel := context.WithCancel(ctx)
	s := &server{
		Runner: r, entry: f.Entry, current: f, cancel: cancel, tracks: map[types.UID]*track{}, looks: make(chan struct{}, 1),
		queue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[key]{}),
	}
	for range workers {
		s.ended.Go(func() {
			for s.next(ctx) {
			}
		})
	}
	s.ended.Go(func() { s.keepLooking(ctx) })
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
	if ctx.Err() == nil && s.Leads() {
		if again := s.visit(ctx, k); again > 0 {
			s.queue.AddAfter(k, again)
		}
	}
	return true
}

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

// finalizer is the one in force.
func (s *server) finalizer() served {
	s.mu.Lock()
	defer s.mu.Unlock()
	return served{s.current}
}

// replace has another reading of the resource served. It reports whether anything
// has changed; then all that wait are looked at again.
func (s *server) replace(f *policies.Finalizer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := !f.Same(s.current)
	if f.Removed && !s.current.Removed {
		s.counted = false
	}
	s.current = f
	if changed {
		for _, t := range s.tracks {
			s.queue.Add(t.key)
		}
	}
	return changed
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

// keep keeps what is known of an object by now.
func (s *server) keep(t track) {
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

// drop forgets an object. It reports whether it was waited for.
func (s *server) drop(k key, released bool) {
	s.mu.Lock()
	_, ok := s.tracks[k.uid]
	delete(s.tracks, k.uid)
	if released {
		s.released++
	}
	s.mu.Unlock()
	if ok || released {
		s.Changed()
	}
}

// Progress says how the finalizer of a resource gets on.
func (r *Runner) Progress(uid types.UID) Progress {
	r.mu.RLock()
	s, ok := r.servers[uid]
	r.mu.RUnlock()
	if !ok {
		return Progress{}
	}
	return s.progress()
}

// All says how each finalizer gets on, by what it is called.
func (r *Runner) All() map[string]Progress {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := map[string]Progress{}
	for _, s := range r.servers {
		all[s.finalizer().String()] = s.progress()
	}
	return all
}

func (s *server) progress() Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := Progress{Pending: len(s.tracks), Released: s.released, Carriers: s.carriers, Counted: s.counted}
	for _, t := range s.tracks {
		if word, is := stuck[t.reason]; is {
			p.Stuck = append(p.Stuck, Stuck{Object: t.object, Reason: word, Message: t.message, Since: t.since, Retry: t.due, Deadline: t.deadline})
		}
	}
	slices.SortFunc(p.Stuck, func(a, b Stuck) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name))
	})
	return p
}
