package modulestore

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/source"
)

// A module is the loading state of a resource. All fields are protected by Store.mu.
type module struct {
	job
	resource Resource
	version  int  // of the source; results for an earlier version are ignored
	removed  bool // the resource was removed
	state    State
	failures int // consecutive fetch failures
	excluded bool
	size     int64 // bytes of its files; 0: not known yet

	ready     *content // the last Ready content; nil: none
	signers   []string // of the last Ready content
	attempted *content // of the last compilation, with its outcome
}

// resetSource schedules loading from a changed source; the caller holds mu.
func (m *module) resetSource(now time.Time) {
	m.stop()
	m.version++
	m.due, m.failures = now, 0
	m.state = State{Step: Fetching, Since: now}
}

// distrust forgets the content that was loaded before, if other signers are trusted now; the
// caller holds Store.mu. Other changes of the source keep it until the new content is loaded.
func (s *Store) distrust(m *module, r Resource) {
	if !equality.Semantic.DeepEqual(m.resource.Spec.Verify, r.Spec.Verify) {
		s.releaseContent(m.ready)
		m.ready = nil
	}
}

// A contentKey identifies content that is compiled once. Namespaces share no compilations.
type contentKey struct {
	namespace string
	engine    v1alpha1.Engine
	digest    string
}

// A content is the outcome of compiling the files of one or more modules.
type content struct {
	key         contentKey
	compileLock chan struct{} // capacity 1: held during compilation

	// Under Store.mu:
	references int
	compiled   Compiled // nil: not compiled
	hooks      []hostabi.Hook
	err        error
	failures   int
	retry      time.Time // zero with an err: never
}

func (c *content) module(pinned bool, signers []string) Module {
	return Module{
		Engine: c.key.engine, Digest: c.key.digest, Hooks: c.hooks, Needs: c.compiled.Needs(), Pinned: pinned, Signers: signers, content: c,
	}
}

// hasOutcome reports whether the outcome of an earlier attempt is still valid; the caller
// holds Store.mu.
func (c *content) hasOutcome(now time.Time) bool {
	return c.compiled != nil || c.err != nil && (c.retry.IsZero() || now.Before(c.retry))
}

// acquireContent returns the content of a key and increments its reference count.
func (s *Store) acquireContent(key contentKey) *content {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.contents[key]
	if !ok {
		c = &content{key: key, compileLock: make(chan struct{}, 1)}
		s.contents[key] = c
	}
	c.references++
	return c
}

// releaseContent decrements the reference count of a content, and frees it if it is unused; the
// caller holds mu. The content may be nil.
func (s *Store) releaseContent(c *content) {
	if c == nil {
		return
	}
	if c.references--; c.references > 0 {
		return
	}
	delete(s.contents, c.key)
	if c.compiled != nil {
		s.unused = append(s.unused, c.compiled)
	}
	s.wakeLoop()
}

// load fetches and compiles a module, and stores the outcome.
func (s *Store) load(ctx context.Context, m *module) {
	s.mu.Lock()
	r, version, keep := m.resource, m.version, m.resource.Terminating && m.ready != nil
	s.mu.Unlock()
	if keep {
		return // its source may be deleted already
	}
	slots := s.localSlots
	if r.remote() {
		slots = s.remoteSlots
	}
	release, err := slots.acquire(ctx, r.Namespace)
	if err != nil {
		return // canceled: removed, or its source has changed
	}
	defer release()
	began := time.Now()
	fetched, err := s.fetch(ctx, r)
	if err != nil {
		s.finishFailedFetch(ctx, m, version, err, time.Since(began))
		return
	}
	if !s.sized(m, version, sizeOf(fetched.Files)) {
		return
	}
	s.mu.Lock()
	if m.version == version && m.state.Phase == Loading {
		m.state.Step = Compiling
	}
	s.mu.Unlock()
	c := s.acquireContent(contentKey{r.Namespace, r.engine(), fetched.Digest})
	s.compile(ctx, c, r, fetched)
	s.finishCompile(ctx, m, version, c, fetched)
}

func sizeOf(files []source.File) (size int64) {
	for _, f := range files {
		size += int64(len(f.Data))
	}
	return size
}

func (s *Store) fetch(ctx context.Context, r Resource) (source.Fetched, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	return s.options.Fetch(ctx, r)
}

// isCurrent reports whether the outcome of an attempt is still relevant; the caller holds mu.
func (m *module) isCurrent(ctx context.Context, version int) bool {
	return !m.removed && m.version == version && ctx.Err() == nil
}

// finishFailedFetch stores a fetch failure. If it is temporary, content fetched before from the
// same source stays Ready.
func (s *Store) finishFailedFetch(ctx context.Context, m *module, version int, err error, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !m.isCurrent(ctx, version) {
		return
	}
	m.failures++
	wait := refetchInterval
	fault := (*source.Error)(nil)
	temporary := !errors.As(err, &fault) || fault.Temporary
	if temporary {
		wait = max(backoff(minFetchBackoff, maxFetchBackoff, m.failures), took)
	}
	now := time.Now()
	m.due = now.Add(wait)
	state := State{Phase: Failed, Step: Fetching, Err: err, NextRetry: m.due}
	if temporary && m.state.Phase == Ready {
		state.Phase, state.Module = Ready, m.state.Module
	} else if !temporary {
		s.releaseContent(m.ready)
		m.ready = nil
	}
	s.setState(m, state, now)
}

// setState stores a state, and publishes it if it has changed; the caller holds mu.
func (s *Store) setState(m *module, state State, now time.Time) {
	was := m.state
	state.Since = was.Since
	if state.Phase != was.Phase {
		state.Since = now
	}
	m.state = state
	unchanged := was.Phase == state.Phase && was.Step == state.Step && was.Module.content == state.Module.content &&
		was.Module.Pinned == state.Module.Pinned && slices.Equal(was.Module.Signers, state.Module.Signers) && errorText(was.Err) == errorText(state.Err)
	if !unchanged {
		s.publish()
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// compile compiles content unless the outcome is known.
func (s *Store) compile(ctx context.Context, c *content, r Resource, fetched source.Fetched) {
	select {
	case c.compileLock <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-c.compileLock }()
	s.mu.Lock()
	known := c.hasOutcome(time.Now())
	s.mu.Unlock()
	if known {
		return
	}
	release, err := s.compileSlots.acquire(ctx, r.Namespace)
	if err != nil {
		return
	}
	defer release()
	began := time.Now()
	compiling, cancel := context.WithTimeout(ctx, compileTimeout)
	defer cancel()
	compiled, err := s.options.Compiler.Compile(compiling, CompileRequest{
		Engine: c.key.engine, Name: r.String(), Namespace: r.Namespace, Files: fetched.Files, Digest: fetched.Digest,
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	compileError := (*CompileError)(nil)
	switch {
	case err == nil:
		c.compiled, c.hooks, c.err, c.failures = compiled, compiled.Hooks(), nil, 0
	case errors.As(err, &compileError) && !compileError.Temporary:
		c.err, c.retry = err, time.Time{}
	case ctx.Err() == nil || compileError != nil:
		c.failures++
		c.err, c.retry = err, now.Add(workBackoff(c.failures, now.Sub(began)))
	}
}

// workBackoff returns the delay after a number of consecutive failures, the last of which took
// the given time.
func workBackoff(failures int, took time.Duration) time.Duration {
	return max(backoff(minWorkBackoff, maxWorkBackoff, failures), workBackoffFactor*took)
}

// finishCompile stores the outcome of a compilation. It takes over the caller's reference.
func (s *Store) finishCompile(ctx context.Context, m *module, version int, c *content, fetched source.Fetched) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !m.isCurrent(ctx, version) {
		s.releaseContent(c)
		return
	}
	s.releaseContent(m.attempted)
	m.attempted, m.failures = c, 0
	now := time.Now()
	_, configMap := m.resource.ConfigMap()
	if configMap || !fetched.Pinned {
		m.scheduleAt(now.Add(refetchInterval))
	}
	if c.compiled == nil {
		m.scheduleAt(c.retry)
		if c.retry.IsZero() {
			s.releaseContent(m.ready)
			m.ready = nil
		}
		s.setState(m, State{Phase: Failed, Step: Compiling, Err: c.err, NextRetry: c.retry}, now)
		return
	}
	c.references++
	s.releaseContent(m.ready)
	m.ready, m.signers = c, fetched.Signers
	s.setState(m, State{Phase: Ready, Module: c.module(fetched.Pinned, fetched.Signers)}, now)
}

// scheduleAt schedules loading no later than at; the zero time means never.
func (m *module) scheduleAt(at time.Time) {
	if !at.IsZero() && (m.due.IsZero() || at.Before(m.due)) {
		m.due = at
	}
}
