// Package worker compiles and runs modules in separate processes, so that no module
// can stall, flood or crash the operator: it limits time and memory from outside,
// by killing the process, and shares the processes fairly between namespaces.
//
// Modules of namespaces never run in a process that serves cluster-scoped policies,
// and a process serves one call at a time, so that the cause of its end is certain.
// Such a module is quarantined: suspended for a time that grows with each
// repetition. A verdict comes only from a complete, valid reply; everything else is
// an error, and the object is kept.
//
// It does not fetch modules, select policies or act on verdicts.
package worker

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// Config is the configuration of a Pool. Zero fields mean the default.
type Config struct {
	// Command starts a worker. Default: this program, with the argument sandbox.
	Command []string

	// CacheDir is the folder of compiled modules, with subfolders for
	// cluster-scoped modules and those of namespaces. Empty: each worker compiles
	// what it runs.
	CacheDir string

	// Workers is the maximum number of processes that run cluster-scoped modules,
	// and of those for modules of namespaces. One more of each compiles. Default 2.
	Workers int

	// Memory is the maximum resident memory of a worker, in bytes; a worker that
	// exceeds it is killed. Default 192 MiB.
	Memory int64

	// CompileTimeout is the maximum time for compiling a module. Default 30s.
	CompileTimeout time.Duration

	// KeepPriority starts workers with the priority of this process. Otherwise they have a
	// lower one, so that they give way to it.
	KeepPriority bool

	// Log logs the start and end of workers.
	Log logr.Logger

	// Now is the clock of quarantines. Default: time.Now.
	Now func() time.Time
}

// Defaults of Config.
const (
	DefaultWorkers        = 2
	DefaultMemory         = 192 << 20
	DefaultCompileTimeout = 30 * time.Second
)

func (c Config) withDefaults() Config {
	if len(c.Command) == 0 {
		c.Command = []string{executable(), "sandbox"}
	}
	if c.Workers == 0 {
		c.Workers = DefaultWorkers
	}
	if c.Memory == 0 {
		c.Memory = DefaultMemory
	}
	if c.CompileTimeout == 0 {
		c.CompileTimeout = DefaultCompileTimeout
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// TotalMemory returns the maximum resident memory of all workers together, in
// bytes.
func (c Config) TotalMemory() int64 {
	c = c.withDefaults()
	return int64(2*c.Workers+2) * c.Memory
}

// Validate reports an invalid configuration.
func (c Config) Validate() error {
	const minMemory = 96 << 20
	switch {
	case c.Workers < 0:
		return fmt.Errorf("number of sandbox workers is %d: it must be at least 1", c.Workers)
	case c.Memory != 0 && c.Memory < minMemory:
		return fmt.Errorf("memory of a sandbox worker is %d bytes: it must be at least %d MiB", c.Memory, minMemory>>20)
	case c.CompileTimeout < 0:
		return fmt.Errorf("compile timeout is %s: it must be above 0", c.CompileTimeout)
	}
	return nil
}

// Scope is the scope of the modules that a worker runs.
type Scope string

// The scopes.
const (
	ScopeCluster   Scope = "Cluster"   // of cluster-scoped policies and finalizers
	ScopeNamespace Scope = "Namespace" // of namespaced ones
)

// scopeOf returns the scope of a policy by its namespace, which is empty for
// cluster-scoped ones.
func scopeOf(namespace string) Scope {
	if namespace == "" {
		return ScopeCluster
	}
	return ScopeNamespace
}

// Pool manages the workers. Its methods may be called concurrently.
type Pool struct {
	config     Config
	running    map[Scope]*group
	compiling  map[Scope]*group
	quarantine *quarantine
	starter    *starter
	stats      stats
	numbers    sequence
	calls      sync.WaitGroup
}

// errClosed is a Pool that has been closed.
var errClosed = errors.New("the sandbox is closed")

// New returns a Pool. Workers are started on demand.
func New(c Config) (*Pool, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	p := &Pool{
		config: c, running: map[Scope]*group{}, compiling: map[Scope]*group{},
		quarantine: newQuarantine(c.Now), starter: newStarter(),
	}
	for _, scope := range []Scope{ScopeCluster, ScopeNamespace} {
		p.running[scope] = newGroup(p, scope, false, c.Workers)
		p.compiling[scope] = newGroup(p, scope, true, 1)
	}
	return p, nil
}

// Close ends all workers and waits for calls to return. Later calls fail.
func (p *Pool) Close() {
	for _, g := range p.groups() {
		g.close()
	}
	p.starter.kill()
	p.calls.Wait()
	p.starter.close()
}

func (p *Pool) groups() []*group {
	return []*group{
		p.running[ScopeCluster], p.running[ScopeNamespace], p.compiling[ScopeCluster], p.compiling[ScopeNamespace],
	}
}

// sequence are IDs of modules and policies in workers.
type sequence struct {
	lock sync.Mutex // covers last
	last uint32
}

func (n *sequence) next() uint32 {
	n.lock.Lock()
	defer n.lock.Unlock()
	n.last++
	return n.last
}

// exitError reports a worker that ended during a call.
type exitError struct {
	cause  Cause
	detail string
}

// Cause is why a worker ended. It is a label value of metrics.
type Cause string

// The causes.
const (
	CauseTime      Cause = "Time"      // killed: the call took too long
	CauseMemory    Cause = "Memory"    // killed: it used too much memory
	CauseCrash     Cause = "Crash"     // it crashed during a call
	CauseKilled    Cause = "Killed"    // something else killed it, as the kernel does when memory runs out
	CauseStalled   Cause = "Stalled"   // killed: the call did not end, although it hardly used the processor
	CauseMalformed Cause = "Malformed" // killed: it did not follow the protocol
	CauseRecycled  Cause = "Recycled"  // ended between two calls, to free what it had loaded
	CauseClosed    Cause = "Closed"    // ended with the operator
)

// causes lists all causes.
var causes = []Cause{
	CauseTime, CauseMemory, CauseCrash, CauseKilled, CauseStalled, CauseMalformed, CauseRecycled, CauseClosed,
}

// causedByModule reports whether the module is known to have caused the end.
func (c Cause) causedByModule() bool { return c == CauseTime || c == CauseMemory || c == CauseCrash }

func (e *exitError) Error() string { return e.detail }

// isEnd reports whether reading failed because the other side is gone.
func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
