package worker

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// recycleCalls is the number of calls after which the memory of a worker is
	// checked.
	recycleCalls = 64

	// recycleCPU is the maximum CPU time of a worker, which the kernel limits as
	// well.
	recycleCPU = time.Hour

	// idleCompiler is how long an idle worker for compiling is kept.
	idleCompiler = 10 * time.Second

	// maxTrackedNamespaces is the maximum number of namespaces whose used time is tracked.
	maxTrackedNamespaces = 10_000
)

// group is the workers of one scope for the same work. Waiting namespaces share
// them fairly: the one that has used the least time is next. If there are several
// workers, a namespace never has all of them.
type group struct {
	pool    *Pool
	scope   Scope
	compile bool
	max     int

	lock    sync.Mutex // protects the following fields
	idle    []*process
	busy    map[string]int // workers, by namespace
	started int            // workers that run, or are being started
	waiting []*waiter      // in the order in which they came
	used    map[string]time.Duration
	minUsed time.Duration // what the last namespace to have its turn had used
	closed  bool
	failed  failure // to start a worker
	sweep   *time.Timer
}

// waiter is a call that waits for a worker.
type waiter struct {
	namespace string
	prefer    func(*process) bool
	ready     chan struct{} // closed when it may go on
	process   *process      // its worker; nil: the call must start one
	canceled  bool
}

func newGroup(p *Pool, scope Scope, compile bool, max int) *group {
	return &group{pool: p, scope: scope, compile: compile, max: max, busy: map[string]int{}, used: map[string]time.Duration{}}
}

// acquire returns a worker for a call of a namespace, preferably one for which prefer
// is true. The caller must return it by put or end, and then count the call as
// finished.
func (g *group) acquire(ctx context.Context, namespace string, prefer func(*process) bool) (p *process, err error) {
	g.lock.Lock()
	if g.closed {
		g.lock.Unlock()
		return nil, errClosed
	}
	g.pool.calls.Add(1) // before close, which has the Pool wait for it
	g.lock.Unlock()
	if p, err = g.await(ctx, namespace, prefer); err != nil {
		g.pool.calls.Done()
	}
	return p, err
}

// await waits for a worker, or for the permission to start one.
func (g *group) await(ctx context.Context, namespace string, prefer func(*process) bool) (*process, error) {
	w := &waiter{namespace: namespace, prefer: prefer, ready: make(chan struct{})}
	g.lock.Lock()
	if g.closed {
		g.lock.Unlock()
		return nil, errClosed
	}
	g.waiting = append(g.waiting, w)
	g.dispatch()
	g.lock.Unlock()
	select {
	case <-w.ready:
	case <-ctx.Done():
		g.cancel(w)
		return nil, fmt.Errorf("wait for a sandbox worker: %w", context.Cause(ctx))
	}
	if w.canceled {
		return nil, errClosed
	}
	if w.process != nil {
		return w.process, nil
	}
	return g.begin(ctx, namespace)
}

// cancel removes a waiting call, or returns the worker that it was just given.
func (g *group) cancel(w *waiter) {
	g.lock.Lock()
	for i, other := range g.waiting {
		if other == w {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			g.lock.Unlock()
			return
		}
	}
	g.lock.Unlock()
	switch {
	case w.canceled:
	case w.process != nil:
		g.release(w.process, w.namespace, 0)
	default:
		g.processEnded(w.namespace)
	}
}

// dispatch assigns workers to waiting calls. The lock is held.
func (g *group) dispatch() {
	for len(g.idle) > 0 || g.room() {
		next := g.next()
		if next < 0 {
			return
		}
		w := g.waiting[next]
		g.waiting = append(g.waiting[:next], g.waiting[next+1:]...)
		g.minUsed = max(g.minUsed, g.used[w.namespace])
		g.busy[w.namespace]++
		if w.process = g.idleProcess(w.prefer); w.process == nil {
			g.started++
		}
		close(w.ready)
	}
}

// next returns the index of the next call; -1 if none may run.
func (g *group) next() int {
	best, least := -1, time.Duration(0)
	share := max(1, g.max-1)
	for i, w := range g.waiting {
		if g.busy[w.namespace] >= share && g.max > 1 {
			continue
		}
		used := max(g.used[w.namespace], g.minUsed-maxAdvantage)
		if best < 0 || used < least {
			best, least = i, used
		}
	}
	return best
}

// maxAdvantage limits the advantage of a namespace that has been idle for long.
const maxAdvantage = 2 * time.Second

// idleProcess takes an idle worker, preferably a preferred one. It returns nil if one must
// be started, which the limit then allows.
func (g *group) idleProcess(prefer func(*process) bool) *process {
	at := -1
	for i, p := range g.idle {
		if prefer == nil || prefer(p) {
			at = i
			break
		}
	}
	if at < 0 && g.room() {
		return nil
	}
	at = max(at, 0)
	p := g.idle[at]
	g.idle = append(g.idle[:at], g.idle[at+1:]...)
	return p
}

// release returns a worker that can be used for the next call.
func (g *group) release(p *process, namespace string, used time.Duration) {
	p.calls++
	p.trim()
	if g.shouldRecycle(p) {
		g.end(p, namespace, used, &exitError{CauseRecycled, "recycled"})
		return
	}
	g.lock.Lock()
	g.charge(namespace, used)
	if g.closed {
		g.lock.Unlock()
		g.end(p, namespace, 0, &exitError{CauseClosed, "closed"})
		return
	}
	g.unreserve(namespace)
	g.idle = append(g.idle, p)
	g.dispatch()
	g.endIdle()
	g.lock.Unlock()
}

// end ends a worker.
func (g *group) end(p *process, namespace string, used time.Duration, cause *exitError) {
	g.endProcess(p, cause)
	g.lock.Lock()
	g.charge(namespace, used)
	g.lock.Unlock()
	g.processEnded(namespace)
}

// replace ends a worker, and starts another one for the same call. If that fails,
// its slot is free.
func (g *group) replace(p *process, namespace string, used time.Duration) (*process, error) {
	g.endProcess(p, p.exit)
	g.lock.Lock()
	g.charge(namespace, used)
	g.lock.Unlock()
	fresh, err := g.start()
	if err != nil {
		g.processEnded(namespace)
	}
	return fresh, err
}

// endProcess ends a worker and counts it.
func (g *group) endProcess(p *process, cause *exitError) {
	p.end(cause)
	actual := cause
	if killed := p.killed.Load(); killed != nil {
		actual = killed
	}
	g.pool.stats.ended(g.scope, actual.cause)
	g.pool.config.Log.V(1).Info("Sandbox worker ended", "scope", g.scope, "cause", actual.cause, "calls", p.calls)
}

// processEnded updates the counts after a worker has ended.
func (g *group) processEnded(namespace string) {
	g.lock.Lock()
	defer g.lock.Unlock()
	g.started--
	g.unreserve(namespace)
	g.dispatch()
}

func (g *group) unreserve(namespace string) {
	if g.busy[namespace]--; g.busy[namespace] <= 0 {
		delete(g.busy, namespace)
	}
}

// charge adds to the time that a namespace has used. Idle namespaces are treated as
// new.
func (g *group) charge(namespace string, used time.Duration) {
	g.used[namespace] = max(g.used[namespace], g.minUsed-maxAdvantage) + used
	if len(g.used) <= maxTrackedNamespaces {
		return
	}
	for name, time := range g.used {
		if time <= g.minUsed {
			delete(g.used, name)
		}
	}
	if len(g.used) > maxTrackedNamespaces {
		clear(g.used)
	}
}

// shouldRecycle reports whether a worker must be replaced: it has loaded much that may no
// longer be used, or is old.
func (g *group) shouldRecycle(p *process) bool {
	if p.calls%recycleCalls != 0 {
		return false
	}
	memory, cpu, ok := usage(p.pid)
	return ok && (memory > g.pool.config.Memory*3/4 || cpu > recycleCPU)
}

// endIdle ends idle workers for compiling: they have nothing loaded. The lock is
// held.
func (g *group) endIdle() {
	if !g.compile {
		return
	}
	if g.sweep != nil {
		g.sweep.Stop()
	}
	g.sweep = time.AfterFunc(idleCompiler, func() {
		for {
			g.lock.Lock()
			if len(g.idle) == 0 {
				g.lock.Unlock()
				return
			}
			p := g.idle[0]
			g.idle = g.idle[1:]
			g.busy[""]++
			g.lock.Unlock()
			g.end(p, "", 0, &exitError{CauseRecycled, "idle"})
		}
	})
}

// close rejects new calls, and ends the idle workers.
func (g *group) close() {
	g.lock.Lock()
	g.closed = true
	waiting, idle := g.waiting, g.idle
	g.waiting, g.idle = nil, nil
	for _, w := range waiting {
		w.canceled = true
		close(w.ready)
	}
	if g.sweep != nil {
		g.sweep.Stop()
	}
	g.lock.Unlock()
	for _, p := range idle {
		p.end(&exitError{CauseClosed, "closed"})
		g.pool.stats.ended(g.scope, CauseClosed)
	}
}
