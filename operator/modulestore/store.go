// Package modulestore loads modules: it fetches, compiles and starts them, each on its
// own, and says how far each has come. Whoever builds a set of policies takes the states
// as they are at that moment, and builds again once they change, so that no module waits
// for another and no policy for somebody else's module.
//
// What failed is remembered by its content: it is tried again once that changes, or after
// a growing backoff. Namespaces share the work fairly by the time that they use, and
// cluster-scoped resources never wait for them.
//
// It knows no policies, conditions or status, and evaluates nothing but settings.
package modulestore

import (
	"cmp"
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/policies/source"
)

// Options configure a Store.
type Options struct {
	Compiler Compiler

	// Fetch returns the files of a module, and checks them against the digest that its
	// resource says, if any. The error is a *source.Error when the source is to blame.
	Fetch func(context.Context, Resource) (source.Fetched, error)

	// Now is the time that settings are validated at. Default: the clock.
	Now func() time.Time

	// CompileSlots and StartSlots are how many modules are compiled, and started, at the
	// same time: so many for all namespaces together, and as many for cluster-scoped
	// resources. Default: 1 each.
	CompileSlots, StartSlots int
}

const (
	// remoteSlots is how many modules are downloaded at the same time for all namespaces
	// together, one for each; as many are for cluster-scoped modules. A slot is held until
	// the module is compiled, which bounds the memory that downloads take.
	remoteSlots = 4

	// localSlots is the same of what the API server has.
	localSlots = 2

	// fetchTimeout bounds a fetch, with the ConfigMaps and Secrets that it reads.
	fetchTimeout = 90 * time.Second

	// refetch is how often a module is fetched again that may have become another one: an
	// image by its tag, an address without a digest, a ConfigMap; and what could not be
	// fetched although nothing is said to be temporary about that.
	refetch = 5 * time.Minute

	// firstRetry and longestRetry bound the wait after a temporary failure to fetch.
	firstRetry, longestRetry = time.Second, time.Minute

	// firstRework and longestRework bound the wait after a temporary failure to compile,
	// start or validate; it is reworkShare times as long as the attempt took at least, so
	// that repeating what takes long leaves most of the time to others.
	firstRework, longestRework, reworkShare = 10 * time.Second, 10 * time.Minute, 10

	// lastCalls is how long an instance is kept that the latest snapshot does not use, for
	// decisions that began by an earlier one. It is longer than one decision takes.
	lastCalls = time.Minute

	// compileTimeout bounds a compilation, as far as the Compiler heeds it.
	compileTimeout = 2 * time.Minute

	// idle is how long the Store sleeps when nothing is due.
	idle = time.Hour
)

// Store loads modules. Its methods may be called concurrently.
type Store struct {
	options                           Options
	remote, local, compiling, booting pool

	changes latest.Value[uint64]
	wake    chan struct{} // capacity 1: there may be something to do

	mu       sync.Mutex // covers what follows
	modules  map[moduleKey]*module
	byRef    map[Ref]*module
	contents map[contentKey]*content
	uses     map[useKey]*use
	garbage  []Compiled // to be closed: nobody uses them
}

// New returns an empty Store. It does nothing until Run is called.
func New(o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.CompileSlots, o.StartSlots = cmp.Or(o.CompileSlots, 1), cmp.Or(o.StartSlots, 1)
	return &Store{
		options: o, wake: make(chan struct{}, 1),
		remote: newPool(remoteSlots, 1, remoteSlots), local: newPool(localSlots, 1, localSlots),
		compiling: newPool(o.CompileSlots, half(o.CompileSlots), o.CompileSlots), booting: newPool(o.StartSlots, half(o.StartSlots), o.StartSlots),
		modules: map[moduleKey]*module{}, byRef: map[Ref]*module{}, contents: map[contentKey]*content{}, uses: map[useKey]*use{},
	}
}

// half of some slots, or the only one, is what one namespace gets.
func half(slots int) int { return (slots + 1) / 2 }

// Changes is published whenever some state has changed by itself. The number means
// nothing.
func (s *Store) Changes() *latest.Value[uint64] { return &s.changes }

func (s *Store) publish() { s.changes.Update(func(n uint64) uint64 { return n + 1 }) }

func (s *Store) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// SetModules says which modules there are. What is new, or comes from elsewhere than
// before, is loaded; what is gone is freed once nobody uses it.
func (s *Store) SetModules(list []Resource) {
	defer s.wakeUp()
	s.mu.Lock()
	defer s.mu.Unlock()
	now, there := time.Now(), map[moduleKey]bool{}
	clear(s.byRef)
	for _, r := range list {
		key := moduleKey{r.Ref, r.UID}
		there[key] = true
		m, ok := s.modules[key]
		if !ok {
			m = &module{resource: r, job: job{due: now}, state: State{Step: Fetching, Since: now}}
			s.modules[key] = m
		}
		s.byRef[r.Ref] = m
		if !sameSource(m.resource, r) && (!r.Terminating || m.ready == nil) {
			m.replace(now)
		}
		m.resource = r
	}
	for key, m := range s.modules {
		if !there[key] {
			m.stop()
			m.gone = true
			s.leave(m.ready)
			s.leave(m.tried)
			delete(s.modules, key)
		}
	}
}

// sameSource reports whether two readings of a module lead to the same place.
func sameSource(a, b Resource) bool {
	a.Spec.Limits, b.Spec.Limits = nil, nil
	return equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// ConfigMapChanged has the modules fetched again that come from a ConfigMap.
func (s *Store) ConfigMapChanged(key types.NamespacedName) {
	defer s.wakeUp()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.modules {
		if from, ok := m.resource.ConfigMap(); ok && from == key {
			m.due, m.failures = time.Now(), 0
		}
	}
}

// Get returns the state of a module; false if there is no such module. With a digest,
// while the module is not Ready, it is what was loaded before if that has this digest:
// content that is pinned is the same whatever becomes of its resource.
func (s *Store) Get(ref Ref, digest string) (State, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.byRef[ref]
	if !ok {
		return State{}, false
	}
	if m.state.Phase != Ready && digest != "" && m.ready != nil && m.ready.key.digest == digest {
		return State{Phase: Ready, Module: m.ready.module(true), Err: m.state.Err, Since: m.state.Since, NextRetry: m.state.NextRetry}, true
	}
	return m.state, true
}

// Run loads until ctx ends, and frees everything then: whoever evaluates after that gets
// a host error.
func (s *Store) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer s.free()
	defer work.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		timer.Reset(s.startDue(ctx, &work))
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-timer.C:
		}
	}
	return nil
}

// startDue starts what is due, and returns how long it takes until there is more.
func (s *Store) startDue(ctx context.Context, work *sync.WaitGroup) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, wait := time.Now(), idle
	for _, m := range s.modules {
		wait = min(wait, s.start(ctx, work, &m.job, now, func(ctx context.Context) { s.load(ctx, m) }))
	}
	for key, u := range s.uses {
		if u.expired(now) {
			delete(s.uses, key)
			work.Go(func() { s.end(u) })
			continue
		}
		if !u.retired.IsZero() {
			wait = min(wait, max(u.retired.Add(lastCalls).Sub(now), 0))
		}
		wait = min(wait, s.start(ctx, work, &u.job, now, func(ctx context.Context) { s.prepare(ctx, u) }))
	}
	for _, c := range s.garbage {
		work.Go(c.Close)
	}
	s.garbage = nil
	return wait
}

// free closes everything. Nothing runs any more.
func (s *Store) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, u := range s.uses {
		if u.handle != nil {
			u.handle.close()
		}
		delete(s.uses, key)
	}
	for key, c := range s.contents {
		if c.compiled != nil {
			c.compiled.Close()
		}
		delete(s.contents, key)
	}
	for _, c := range s.garbage {
		c.Close()
	}
	s.garbage = nil
}

// moduleKey tells apart modules. In files they need not have a UID.
type moduleKey struct {
	ref Ref
	uid types.UID
}

// job is the work on one key, of which no more than one runs at a time.
type job struct {
	due     time.Time // zero: there is nothing to do
	running bool
	cancel  context.CancelFunc // of what runs
}

// start starts a job that is due, and returns how long it takes until it is; the caller
// holds mu.
func (s *Store) start(ctx context.Context, work *sync.WaitGroup, j *job, now time.Time, do func(context.Context)) time.Duration {
	switch {
	case j.running || j.due.IsZero():
		return idle
	case j.due.After(now):
		return j.due.Sub(now)
	}
	j.due, j.running = time.Time{}, true
	ctx, j.cancel = context.WithCancel(ctx)
	work.Go(func() {
		do(ctx)
		s.mu.Lock()
		j.running = false
		j.cancel()
		s.mu.Unlock()
		s.wakeUp()
	})
	return idle
}

// stop ends what runs, and has nothing follow; the caller holds mu.
func (j *job) stop() {
	j.due = time.Time{}
	if j.running {
		j.cancel()
	}
}

// backoff is the wait after so many failures in a row.
func backoff(first, longest time.Duration, failures int) time.Duration {
	wait := first
	for range failures - 1 {
		if wait = 2 * wait; wait >= longest {
			return longest
		}
	}
	return wait
}
