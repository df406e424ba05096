package modulestore

import (
	"context"
	"errors"
	"time"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/source"
)

// module is what the Store knows of a resource. All of it is under Store.mu.
type module struct {
	job
	resource Resource
	version  int  // of the source: what was loaded for an earlier one does not count
	gone     bool // the resource is not there any more
	state    State
	failures int // to fetch, in a row

	ready *content // that was Ready last; nil: none
	tried *content // of the last attempt to compile, which remembers how it ended
}

// replace has the module loaded from another source; the caller holds mu.
func (m *module) replace(now time.Time) {
	m.stop()
	m.version++
	m.due, m.failures = now, 0
	m.state = State{Step: Fetching, Since: now}
}

// contentKey is what is compiled once. Namespaces share nothing, not even the wait for a
// compilation.
type contentKey struct {
	namespace string
	engine    v1alpha1.Engine
	digest    string
}

// content is the files of modules, and what came of compiling them.
type content struct {
	key  contentKey
	busy chan struct{} // capacity 1: it is being compiled

	// Under Store.mu:
	users    int
	compiled Compiled // nil: not, or not yet
	hooks    []hostabi.Hook
	err      error
	failures int
	retry    time.Time // zero with an err: never
}

func (c *content) module(pinned bool) Module {
	return Module{Engine: c.key.engine, Digest: c.key.digest, Hooks: c.hooks, Pinned: pinned, content: c}
}

// remembers reports whether the outcome of an earlier attempt still counts; the caller
// holds Store.mu.
func (c *content) remembers(now time.Time) bool {
	return c.compiled != nil || c.err != nil && (c.retry.IsZero() || now.Before(c.retry))
}

// enter returns the content of a key, which has one more user now.
func (s *Store) enter(key contentKey) *content {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.contents[key]
	if !ok {
		c = &content{key: key, busy: make(chan struct{}, 1)}
		s.contents[key] = c
	}
	c.users++
	return c
}

// leave takes a user from a content, if there is one, and frees it with the last; the
// caller holds mu.
func (s *Store) leave(c *content) {
	if c == nil {
		return
	}
	if c.users--; c.users > 0 {
		return
	}
	delete(s.contents, c.key)
	if c.compiled != nil {
		s.garbage = append(s.garbage, c.compiled)
	}
	s.wakeUp()
}

// load fetches and compiles a module, and notes what came of it.
func (s *Store) load(ctx context.Context, m *module) {
	s.mu.Lock()
	r, version, kept := m.resource, m.version, m.resource.Terminating && m.ready != nil
	s.mu.Unlock()
	if kept {
		return // what it comes from may be gone already
	}
	places := s.local
	if r.remote() {
		places = s.remote
	}
	release, err := places.acquire(ctx, r.Namespace)
	if err != nil {
		return // it is gone, or comes from elsewhere by now
	}
	defer release()
	began := time.Now()
	fetched, err := s.fetch(ctx, r)
	if err != nil {
		s.notFetched(ctx, m, version, err, time.Since(began))
		return
	}
	s.mu.Lock()
	if m.version == version && m.state.Phase == Loading {
		m.state.Step = Compiling
	}
	s.mu.Unlock()
	c := s.enter(contentKey{r.Namespace, r.engine(), fetched.Digest})
	s.compile(ctx, c, r, fetched)
	s.compiled(ctx, m, version, c, fetched.Pinned)
}

func (s *Store) fetch(ctx context.Context, r Resource) (source.Fetched, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	return s.options.Fetch(ctx, r)
}

// current reports whether the outcome of an attempt still matters; the caller holds mu.
func (m *module) current(ctx context.Context, version int) bool {
	return !m.gone && m.version == version && ctx.Err() == nil
}

// notFetched notes a failure to fetch. If it is temporary, what was fetched before from
// the same source stays.
func (s *Store) notFetched(ctx context.Context, m *module, version int, err error, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !m.current(ctx, version) {
		return
	}
	m.failures++
	wait := refetch
	fault := (*source.Error)(nil)
	temporary := !errors.As(err, &fault) || fault.Temporary
	if temporary {
		wait = max(backoff(firstRetry, longestRetry, m.failures), took)
	}
	now := time.Now()
	m.due = now.Add(wait)
	state := State{Phase: Failed, Step: Fetching, Err: err, NextRetry: m.due}
	if temporary && m.state.Phase == Ready {
		state.Phase, state.Module = Ready, m.state.Module
	} else if !temporary {
		s.leave(m.ready)
		m.ready = nil
	}
	s.set(m, state, now)
}

// set publishes a state, unless it is the one that was; the caller holds mu.
func (s *Store) set(m *module, state State, now time.Time) {
	was := m.state
	state.Since = was.Since
	if state.Phase != was.Phase {
		state.Since = now
	}
	m.state = state
	same := was.Phase == state.Phase && was.Step == state.Step && was.Module.content == state.Module.content &&
		was.Module.Pinned == state.Module.Pinned && text(was.Err) == text(state.Err)
	if !same {
		s.publish()
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// compile compiles content, unless it is known what comes of that.
func (s *Store) compile(ctx context.Context, c *content, r Resource, fetched source.Fetched) {
	select {
	case c.busy <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-c.busy }()
	s.mu.Lock()
	known := c.remembers(time.Now())
	s.mu.Unlock()
	if known {
		return
	}
	release, err := s.compiling.acquire(ctx, r.Namespace)
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
	blamed := (*CompileError)(nil)
	switch {
	case err == nil:
		c.compiled, c.hooks, c.err, c.failures = compiled, compiled.Hooks(), nil, 0
	case errors.As(err, &blamed) && !blamed.Temporary:
		c.err, c.retry = err, time.Time{}
	case ctx.Err() == nil || blamed != nil:
		c.failures++
		c.err, c.retry = err, now.Add(rework(c.failures, now.Sub(began)))
	}
}

// rework is the wait after so many attempts in a row that came to nothing, of which the
// last took so long.
func rework(failures int, took time.Duration) time.Duration {
	return max(backoff(firstRework, longestRework, failures), reworkShare*took)
}

// compiled notes what came of compiling. It takes over the caller's use of the content.
func (s *Store) compiled(ctx context.Context, m *module, version int, c *content, pinned bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !m.current(ctx, version) {
		s.leave(c)
		return
	}
	s.leave(m.tried)
	m.tried, m.failures = c, 0
	now := time.Now()
	_, configMap := m.resource.ConfigMap()
	if configMap || !pinned {
		m.dueAt(now.Add(refetch))
	}
	if c.compiled == nil {
		m.dueAt(c.retry)
		if c.retry.IsZero() {
			s.leave(m.ready)
			m.ready = nil
		}
		s.set(m, State{Phase: Failed, Step: Compiling, Err: c.err, NextRetry: c.retry}, now)
		return
	}
	c.users++
	s.leave(m.ready)
	m.ready = c
	s.set(m, State{Phase: Ready, Module: c.module(pinned)}, now)
}

// dueAt has the module loaded again at some time, or before; never for the zero time.
func (m *module) dueAt(at time.Time) {
	if !at.IsZero() && (m.due.IsZero() || at.Before(m.due)) {
		m.due = at
	}
}
