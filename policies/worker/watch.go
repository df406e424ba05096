package worker

import (
	"fmt"
	"sync"
	"time"
)

// watchInterval is how often a worker is looked at that has been busy for as long.
const watchInterval = 20 * time.Millisecond

// bounds are what one exchange may take.
type bounds struct {
	// time is how long it may take. It counts as used up once the wall clock and the
	// processor agree on that, so that a busy machine is no fault of the module. After four
	// times as long the worker is killed in any case, which is the module's fault if it had the
	// processor for half of its time.
	time time.Duration

	// wall is how long it may take by the wall clock alone, in place of time. 0: time counts.
	wall   time.Duration
	memory int64  // bytes of resident memory
	doing  string // for messages: "evaluating" …
}

const wallFactor = 4

// maxStopped is how long a worker may stand still while it is waited for because of a signal
// such as SIGSTOP. That is neither a slow module nor a busy machine, and may never end.
const maxStopped = 200 * time.Millisecond

// watch kills a worker that exceeds its bounds.
type watch struct {
	lock    sync.Mutex // covers what follows
	timer   *time.Timer
	bounds  bounds
	running bool
	began   time.Time
	cpu     time.Duration // that the process had used when first looked at
	looked  bool
	stopped time.Time // when it was first seen to stand still; zero: it does not
	peak    int64     // resident memory seen, in bytes
}

// begin starts to watch an exchange.
func (w *watch) begin(p *process, b bounds) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.bounds, w.running, w.began, w.looked, w.stopped, w.peak = b, true, time.Now(), false, time.Time{}, 0
	if w.timer == nil {
		w.timer = time.AfterFunc(watchInterval, func() { w.look(p) })
		return
	}
	w.timer.Reset(watchInterval)
}

// reset forgets the last exchange, since the next is not watched.
func (w *watch) reset() {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.looked = false
}

// end stops it.
func (w *watch) end() {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.running = false
	if w.timer != nil {
		w.timer.Stop()
	}
}

// used returns the processor time that the last exchange has used, if that is known.
func (w *watch) used(p *process) (time.Duration, bool) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if !w.looked {
		return 0, false
	}
	_, cpu, ok := usage(p.pid)
	return cpu - w.cpu, ok
}

// look kills the process if it exceeds its bounds, and comes back otherwise.
func (w *watch) look(p *process) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if !w.running {
		return
	}
	memory, cpu, ok := usage(p.pid)
	if !w.looked && ok {
		// What it has used since the exchange began is not known. It is little, but if this look
		// is late, since the operator did not run, neither may the worker have run.
		w.cpu, w.looked = max(0, cpu-min(time.Since(w.began), 2*watchInterval)), true
	}
	w.peak = max(w.peak, memory)
	elapsed := time.Since(w.began)
	switch {
	case w.stands(p.pid):
		p.kill(&deathError{CauseStalled, fmt.Sprintf("%s it was stopped by a signal for more than %s", w.bounds.doing, maxStopped)})
		return
	case ok && memory > w.bounds.memory:
		p.kill(&deathError{CauseMemory, fmt.Sprintf("%s it used more than %d MiB of memory", w.bounds.doing, w.bounds.memory>>20)})
		return
	case w.bounds.wall != 0 && elapsed > w.bounds.wall:
		p.kill(&deathError{CauseStalled, fmt.Sprintf("%s it was not ready within %s", w.bounds.doing, w.bounds.wall)})
		return
	case w.bounds.wall != 0:
	case elapsed > w.bounds.time && (!usageKnown || ok && cpu-w.cpu > w.bounds.time),
		elapsed > wallFactor*w.bounds.time && ok && cpu-w.cpu > w.bounds.time/2:
		p.kill(&deathError{CauseTime, fmt.Sprintf("%s it took longer than %s", w.bounds.doing, w.bounds.time)})
		return
	case elapsed > wallFactor*w.bounds.time:
		p.kill(&deathError{CauseStalled, fmt.Sprintf("%s it did not end within %s, with less than %s of processor time",
			w.bounds.doing, wallFactor*w.bounds.time, w.bounds.time/2)})
		return
	}
	w.timer.Reset(watchInterval)
}

// stands reports whether the process has been stopped for too long.
func (w *watch) stands(pid int) bool {
	switch {
	case !isStopped(pid):
		w.stopped = time.Time{}
	case w.stopped.IsZero():
		w.stopped = time.Now()
	}
	return !w.stopped.IsZero() && time.Since(w.stopped) > maxStopped
}
