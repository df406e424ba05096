package worker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A start takes 10 ms, next to 34 processes on two cores up to 4 s. So one that takes
// firstStart has most likely hung; in case the machine is that slow, each attempt in a
// row has twice as long.
const firstStart, maxStart = 5 * time.Second, 30 * time.Second

// failure is that workers could not be started, lately.
type failure struct {
	err   error
	times int       // in a row
	until time.Time // when the next attempt is made
}

const firstRestart, maxRestart = time.Second, 30 * time.Second

// within is how long the next worker may take to start.
func (f failure) within() time.Duration {
	return min(maxStart, firstStart<<min(f.times, 16))
}

// begin starts a worker for a call, which waits for it no longer than its context. The
// worker is for the next call then.
func (g *group) begin(ctx context.Context, namespace string) (*process, error) {
	type result struct {
		process *process
		err     error
	}
	started := make(chan result)
	g.pool.calls.Add(1)
	go func() {
		defer g.pool.calls.Done()
		p, err := g.start()
		if err != nil {
			g.processEnded(namespace)
		}
		select {
		case started <- result{p, err}:
		case <-ctx.Done():
			if err == nil {
				g.release(p, namespace, 0)
			}
		}
	}()
	select {
	case r := <-started:
		return r.process, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a sandbox worker to start: %w", context.Cause(ctx))
	}
}

// room reports whether a worker may be started: while that fails, only if there is none,
// so that the call fails at once. The lock is held.
func (g *group) room() bool {
	return g.started < g.max && (g.started == 0 || !g.pool.config.Now().Before(g.failed.until))
}

// start starts a worker, for which there is room, unless the last attempt failed just now.
func (g *group) start() (*process, error) {
	g.lock.Lock()
	failed := g.failed
	g.lock.Unlock()
	if g.pool.config.Now().Before(failed.until) {
		return nil, failed.err
	}
	p, err := g.launch(failed.within())
	g.lock.Lock()
	defer g.lock.Unlock()
	switch {
	case err == nil:
		g.failed = failure{}
	case !g.closed:
		g.failed.err = err
		g.failed.times++
		wait := min(maxRestart, firstRestart<<min(g.failed.times-1, 16))
		g.failed.until = g.pool.config.Now().Add(wait)
		g.pool.config.Log.Error(err, "Failed to start a sandbox worker, retrying", "scope", g.scope, "after", wait.String())
	}
	return p, err
}

func (g *group) launch(within time.Duration) (*process, error) {
	p, err := g.pool.starter.start(g.pool.config, launch{dir: g.cacheDir(), nice: g.niceness(), timeout: within})
	if err != nil {
		return nil, err
	}
	g.pool.stats.startedAt(g.scope)
	g.pool.announce(p.active)
	return p, nil
}

// niceness returns the niceness of this group's workers.
func (g *group) niceness() int {
	switch {
	case g.pool.config.KeepPriority:
		return 0
	case g.compile:
		return niceCompile
	case g.scope == ScopeNamespace:
		return niceNamespace
	default:
		return niceCluster
	}
}

// cacheDir is the folder that this scope's workers keep compiled modules in.
func (g *group) cacheDir() string {
	if g.pool.config.CacheDir == "" {
		return ""
	}
	dir := filepath.Join(g.pool.config.CacheDir, "compiled-"+strings.ToLower(string(g.scope)))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "" // a disk that is full costs time, no more
	}
	return dir
}
