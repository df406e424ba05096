// Package modulestore loads modules: it fetches, compiles and starts each of them
// independently, and publishes its state. A policy set is built from the current states,
// and rebuilt when they change, so no module waits for another one, and no policy for
// another policy's module.
//
// Failures are cached by content: the work is retried when the content changes, or after
// an increasing backoff. Namespaces share the work fairly by the time that they use, and
// cluster-scoped resources never wait for them.
//
// The package does not depend on policies, conditions or status, and evaluates nothing but
// settings.
package modulestore

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/policies/source"
)

// Options configure a Store.
type Options struct {
	Compiler Compiler

	// Fetch returns the files of a module, and checks them against the digest in its
	// resource, if any. The error is a *source.Error if the source caused it.
	Fetch func(context.Context, Resource) (source.Fetched, error)

	// Now returns the time in requests that validate settings. Default: time.Now.
	Now func() time.Time

	Quota Quota

	// DisableTenantModules excludes all PolicyModules.
	DisableTenantModules bool

	// CompileSlots and StartSlots are the maximum numbers of concurrent compilations and
	// starts, for all namespaces together and again for cluster-scoped resources.
	// Default: 1 each.
	CompileSlots, StartSlots int
}

const (
	// maxRemoteFetches is the maximum number of concurrent downloads for all namespaces together,
	// with one for each, and again for cluster-scoped modules. A slot is held until the
	// module is compiled, which limits the memory used by downloads.
	maxRemoteFetches = 4

	// maxLocalFetches is the same for modules that are read from the API server.
	maxLocalFetches = 2

	// fetchTimeout bounds a fetch, including reads of ConfigMaps and Secrets.
	fetchTimeout = 90 * time.Second

	// refetchInterval is the interval between fetches of modules whose content may change (image
	// tags, URLs without a digest, ConfigMaps) and after permanent fetch failures.
	refetchInterval = 5 * time.Minute

	// minFetchBackoff and maxFetchBackoff bound the backoff after temporary fetch failures.
	minFetchBackoff, maxFetchBackoff = time.Second, time.Minute

	// minWorkBackoff and maxWorkBackoff bound the backoff after temporary failures to compile,
	// start or validate. It is at least workBackoffFactor times the duration of the attempt, so
	// that retries of slow work leave most of the time to others.
	minWorkBackoff, maxWorkBackoff, workBackoffFactor = 10 * time.Second, 10 * time.Minute, 10

	// retirePeriod is how long an instance is kept after the latest snapshot stopped using it,
	// for decisions that began with an earlier snapshot. It is longer than any decision.
	retirePeriod = time.Minute

	// compileTimeout bounds a compilation, if the Compiler respects its context.
	compileTimeout = 2 * time.Minute

	// idleInterval is the interval between checks while nothing is due.
	idleInterval = time.Hour
)

// A Store loads modules. Its methods may be called concurrently.
type Store struct {
	options                                           Options
	remoteSlots, localSlots, compileSlots, startSlots pool

	changes latest.Value[uint64]
	wake    chan struct{} // capacity 1: work may be due

	configMaps atomic.Pointer[map[types.NamespacedName]struct{}] // that modules come from

	mu       sync.Mutex // protects the fields below
	modules  map[moduleKey]*module
	byRef    map[Ref]*module
	contents map[contentKey]*content
	uses     map[useKey]*use
	unused   []Compiled // unused, to be closed
}

// New returns an empty Store. It loads nothing until Run is called.
func New(o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.CompileSlots, o.StartSlots = cmp.Or(o.CompileSlots, 1), cmp.Or(o.StartSlots, 1)
	return &Store{
		options: o, wake: make(chan struct{}, 1),
		remoteSlots: newPool(maxRemoteFetches, 1, maxRemoteFetches), localSlots: newPool(maxLocalFetches, 1, maxLocalFetches),
		compileSlots: newPool(o.CompileSlots, halfOf(o.CompileSlots), o.CompileSlots), startSlots: newPool(o.StartSlots, halfOf(o.StartSlots), o.StartSlots),
		modules: map[moduleKey]*module{}, byRef: map[Ref]*module{}, contents: map[contentKey]*content{}, uses: map[useKey]*use{},
	}
}

// halfOf returns the maximum number of slots for one namespace: half of them, rounded up.
func halfOf(slots int) int { return (slots + 1) / 2 }

// Changes is published when any state has changed asynchronously. The number has no
// meaning.
func (s *Store) Changes() *latest.Value[uint64] { return &s.changes }

func (s *Store) publish() { s.changes.Update(func(n uint64) uint64 { return n + 1 }) }

func (s *Store) wakeLoop() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// SetModules sets the modules. New modules and modules whose source has changed are
// loaded; removed modules are freed once they are unused.
func (s *Store) SetModules(list []Resource) {
	defer s.wakeLoop()
	s.mu.Lock()
	defer s.mu.Unlock()
	now, present, configMaps := time.Now(), map[moduleKey]bool{}, map[types.NamespacedName]struct{}{}
	for _, r := range list {
		if key, ok := r.ConfigMap(); ok {
			configMaps[key] = struct{}{}
		}
	}
	s.configMaps.Store(&configMaps) // before they are fetched: no later change may be missed
	clear(s.byRef)
	for _, r := range list {
		key := moduleKey{r.Ref, r.UID}
		present[key] = true
		m, ok := s.modules[key]
		if !ok {
			m = &module{resource: r, size: r.inlineSize(), job: job{due: now}, state: State{Step: Fetching, Since: now}}
			s.modules[key] = m
		}
		s.byRef[r.Ref] = m
		s.distrust(m, r) // also if it is terminating
		if !sameSource(m.resource, r) && (!r.Terminating || m.ready == nil) {
			m.size = r.inlineSize()
			if !m.excluded {
				m.resetSource(now)
			}
		}
		m.resource = r
	}
	for key, m := range s.modules {
		if !present[key] {
			m.stop()
			m.removed = true
			s.releaseContent(m.ready)
			s.releaseContent(m.attempted)
			delete(s.modules, key)
		}
	}
	s.applyQuota(now)
}

// sameSource reports whether two versions of a module have the same source.
func sameSource(a, b Resource) bool {
	a.Spec.Limits, b.Spec.Limits = nil, nil
	return equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// ConfigMapChanged fetches the modules in a ConfigMap again.
func (s *Store) ConfigMapChanged(key types.NamespacedName) {
	if known := s.configMaps.Load(); known == nil {
		return
	} else if _, is := (*known)[key]; !is {
		return // the usual case, for every event of every ConfigMap
	}
	defer s.wakeLoop()
	s.mu.Lock()
	defer s.mu.Unlock()
	now, changed := time.Now(), false
	for _, m := range s.modules {
		if from, ok := m.resource.ConfigMap(); ok && from == key {
			m.failures, changed = 0, true
			if m.excluded {
				m.size = 0 // it may be within the quota now
			} else {
				m.due = now
			}
		}
	}
	if changed {
		s.applyQuota(now)
	}
}

// Get returns the state of a module; false if it does not exist. While the module is not
// Ready, content with the given digest that was loaded before is returned as Ready: pinned
// content does not depend on its resource.
func (s *Store) Get(ref Ref, digest string) (State, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.byRef[ref]
	if !ok {
		return State{}, false
	}
	if m.state.Phase != Ready && digest != "" && m.ready != nil && m.ready.key.digest == digest {
		return State{Phase: Ready, Module: m.ready.module(true, m.signers), Err: m.state.Err, Since: m.state.Since, NextRetry: m.state.NextRetry}, true
	}
	return m.state, true
}

// Run loads modules until ctx ends, and then frees everything. Later evaluations return a
// host error.
func (s *Store) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer s.closeAll()
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

// startDue starts the jobs that are due, and returns the time until the next one.
func (s *Store) startDue(ctx context.Context, work *sync.WaitGroup) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, wait := time.Now(), idleInterval
	for _, m := range s.modules {
		wait = min(wait, s.startJob(ctx, work, &m.job, now, func(ctx context.Context) { s.load(ctx, m) }))
	}
	for key, u := range s.uses {
		if u.expired(now) {
			delete(s.uses, key)
			work.Go(func() { s.closeUse(u) })
			continue
		}
		if !u.retiredAt.IsZero() {
			wait = min(wait, max(u.retiredAt.Add(retirePeriod).Sub(now), 0))
		}
		wait = min(wait, s.startJob(ctx, work, &u.job, now, func(ctx context.Context) { s.prepare(ctx, u) }))
	}
	for _, c := range s.unused {
		work.Go(c.Close)
	}
	s.unused = nil
	return wait
}

// closeAll closes everything, after all jobs have ended.
func (s *Store) closeAll() {
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
	for _, c := range s.unused {
		c.Close()
	}
	s.unused = nil
}

// A moduleKey identifies a module. Modules from files may have no UID.
type moduleKey struct {
	ref Ref
	uid types.UID
}

// A job is the work for one key; at most one run at a time.
type job struct {
	due     time.Time // zero: nothing to do
	running bool
	cancel  context.CancelFunc // cancels the current run
}

// startJob starts a job that is due, or returns the time until it is; the caller holds mu.
func (s *Store) startJob(ctx context.Context, work *sync.WaitGroup, j *job, now time.Time, do func(context.Context)) time.Duration {
	switch {
	case j.running || j.due.IsZero():
		return idleInterval
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
		s.wakeLoop()
	})
	return idleInterval
}

// stop cancels the current run and clears the schedule; the caller holds mu.
func (j *job) stop() {
	j.due = time.Time{}
	if j.running {
		j.cancel()
	}
}

// backoff returns the delay after a number of consecutive failures.
func backoff(initial, limit time.Duration, failures int) time.Duration {
	wait := initial
	for range failures - 1 {
		if wait = 2 * wait; wait >= limit {
			return limit
		}
	}
	return wait
}
