package worker

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// recycleCalls is after how many calls the memory of a worker is looked at.
	recycleCalls = 64

	// recycleCPU is how much processor time a worker uses in its life, which the kernel
	// bounds as well.
	recycleCPU = time.Hour

	// idleCompiler is how long a worker that compiles is kept without work.
	idleCompiler = 10 * time.Second

	// maxTurns bounds how many namespaces are remembered with the time that they have used.
	maxTurns = 10_000
)

// group is the workers of one scope that do the same. Namespaces that wait take turns: the
// one that has used the least time is next. Where there are several workers, a namespace
// never has them all.
type group struct {
	pool    *Pool
	scope   Scope
	compile bool
	max     int

	lock    sync.Mutex // covers what follows
	idle    []*process
	busy    map[string]int // workers, by namespace
	started int            // workers that run, or are being started
	waiting []*waiter      // in the order in which they came
	used    map[string]time.Duration
	floor   time.Duration // what the last namespace to have its turn had used
	closed  bool
	failed  failure // to start a worker
	sweep   *time.Timer
}

// waiter is a call that waits for a worker.
type waiter struct {
	namespace string
	prefer    func(*process) bool
	ready     chan struct{} // closed when it may go on
	process   *process      // its worker; nil: it is to start one
	canceled  bool
}

func newGroup(p *Pool, scope Scope, compile bool, max int) *group {
	return &group{pool: p, scope: scope, compile: compile, max: max, busy: map[string]int{}, used: map[string]time.Duration{}}
}

// take returns a worker for a call of a namespace. It prefers one for which prefer is
// true. It is to be given back by put or end, and the call is to be counted off then.
func (g *group) take(ctx context.Context, namespace string, prefer func(*process) bool) (p *process, err error) {
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

// await waits for a worker, or for room to start one.
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

// cancel withdraws a call that waits, or gives back what it has just been given.
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
		g.put(w.process, w.namespace, 0)
	default:
		g.gone(w.namespace)
	}
}

// dispatch hands workers to calls that wait, for as long as there are both. The lock is
// held.
func (g *group) dispatch() {
	for len(g.idle) > 0 || g.room() {
		next := g.next()
		if next < 0 {
			return
		}
		w := g.waiting[next]
		g.waiting = append(g.waiting[:next], g.waiting[next+1:]...)
		g.floor = max(g.floor, g.used[w.namespace])
		g.busy[w.namespace]++
		if w.process = g.pick(w.prefer); w.process == nil {
			g.started++
		}
		close(w.ready)
	}
}

// next is the index of the call whose turn it is; -1: none may go on.
func (g *group) next() int {
	best, least := -1, time.Duration(0)
	share := max(1, g.max-1)
	for i, w := range g.waiting {
		if g.busy[w.namespace] >= share && g.max > 1 {
			continue
		}
		used := max(g.used[w.namespace], g.floor-fairMemory)
		if best < 0 || used < least {
			best, least = i, used
		}
	}
	return best
}

// fairMemory bounds how much of an advantage a namespace has that has used nothing for long.
const fairMemory = 2 * time.Second

// pick takes an idle worker, rather one that is preferred. Nil: one is to be started, which
// there is room for.
func (g *group) pick(prefer func(*process) bool) *process {
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

// put gives a worker back that is fit for the next call.
func (g *group) put(p *process, namespace string, used time.Duration) {
	p.calls++
	p.trim()
	if g.spent(p) {
		g.end(p, namespace, used, &deathError{CauseRecycled, "recycled"})
		return
	}
	g.lock.Lock()
	g.charge(namespace, used)
	if g.closed {
		g.lock.Unlock()
		g.end(p, namespace, 0, &deathError{CauseClosed, "closed"})
		return
	}
	g.release(namespace)
	g.idle = append(g.idle, p)
	g.dispatch()
	g.retire()
	g.lock.Unlock()
}

// end gets rid of a worker.
func (g *group) end(p *process, namespace string, used time.Duration, cause *deathError) {
	g.finish(p, cause)
	g.lock.Lock()
	g.charge(namespace, used)
	g.lock.Unlock()
	g.gone(namespace)
}

// replace gets rid of a worker that has ended, and starts another in its place. If that
// fails, the place is free.
func (g *group) replace(p *process, namespace string, used time.Duration) (*process, error) {
	g.finish(p, p.dead)
	g.lock.Lock()
	g.charge(namespace, used)
	g.lock.Unlock()
	fresh, err := g.start()
	if err != nil {
		g.gone(namespace)
	}
	return fresh, err
}

// finish ends a worker and counts it.
func (g *group) finish(p *process, cause *deathError) {
	p.end(cause)
	actual := cause
	if killed := p.killed.Load(); killed != nil {
		actual = killed
	}
	g.pool.stats.ended(g.scope, actual.cause)
	g.pool.config.Log.V(1).Info("Sandbox worker ended", "scope", g.scope, "cause", actual.cause, "calls", p.calls)
}

// gone notes that there is one worker less.
func (g *group) gone(namespace string) {
	g.lock.Lock()
	defer g.lock.Unlock()
	g.started--
	g.release(namespace)
	g.dispatch()
}

func (g *group) release(namespace string) {
	if g.busy[namespace]--; g.busy[namespace] <= 0 {
		delete(g.busy, namespace)
	}
}

// charge adds to what a namespace has used. Those that have used least are as if new.
func (g *group) charge(namespace string, used time.Duration) {
	g.used[namespace] = max(g.used[namespace], g.floor-fairMemory) + used
	if len(g.used) <= maxTurns {
		return
	}
	for name, time := range g.used {
		if time <= g.floor {
			delete(g.used, name)
		}
	}
	if len(g.used) > maxTurns {
		clear(g.used)
	}
}

// spent reports whether a worker is to be replaced: it has loaded much that may be used no
// more, or has lived long.
func (g *group) spent(p *process) bool {
	if p.calls%recycleCalls != 0 {
		return false
	}
	memory, cpu, ok := usage(p.pid)
	return ok && (memory > g.pool.config.Memory*3/4 || cpu > recycleCPU)
}

// retire ends workers that compile once they have had nothing to do for a while: they have
// nothing loaded. The lock is held.
func (g *group) retire() {
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
			g.end(p, "", 0, &deathError{CauseRecycled, "idle"})
		}
	})
}

// close has no call begin any more, and ends the workers that are in none.
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
		p.end(&deathError{CauseClosed, "closed"})
		g.pool.stats.ended(g.scope, CauseClosed)
	}
}
