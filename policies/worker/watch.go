package worker

import (
	"fmt"
	"sync"
	"time"
)

// watchInterval is the interval at which a busy worker is checked.
const watchInterval = 20 * time.Millisecond

// bounds are the limits of one exchange.
type bounds struct {
	// cpuTime is the maximum duration. It is exceeded once the wall clock and the CPU
	// time agree on that, so that a busy machine is no fault of the module. After
	// four times as long the worker is killed in any case, which is the module's
	// fault if it had the CPU for half of its time.
	cpuTime time.Duration

	// wallTime is the maximum duration by the wall clock only, instead of time. 0: time
	// applies.
	wallTime time.Duration
	memory   int64  // bytes of resident memory
	phase    string // for messages: "evaluating" …
}

const wallFactor = 4

// maxStopped is how long a worker may be stopped by a signal such as SIGSTOP during
// an exchange. That is neither a slow module nor a busy machine, and may never end.
const maxStopped = 200 * time.Millisecond

// watch kills a worker that exceeds its bounds.
type watch struct {
	lock      sync.Mutex // protects the following fields
	timer     *time.Timer
	bounds    bounds
	running   bool
	began     time.Time
	cpu       time.Duration // that the process had used when first looked at
	checkedAt bool
	stopped   time.Time // when it was first seen to stand still; zero: it does not
	peak      int64     // resident memory seen, in bytes
}

// begin starts to watch an exchange.
func (w *watch) begin(p *process, b bounds) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.bounds, w.running, w.began, w.checkedAt, w.stopped, w.peak = b, true, time.Now(), false, time.Time{}, 0
	if w.timer == nil {
		w.timer = time.AfterFunc(watchInterval, func() { w.check(p) })
		return
	}
	w.timer.Reset(watchInterval)
}

// reset forgets the last exchange, since the next one is not watched.
func (w *watch) reset() {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.checkedAt = false
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
	if !w.checkedAt {
		return 0, false
	}
	_, cpu, ok := usage(p.pid)
	return cpu - w.cpu, ok
}

// check kills the process if it exceeds its bounds.
func (w *watch) check(p *process) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if !w.running {
		return
	}
	memory, cpu, ok := usage(p.pid)
	if !w.checkedAt && ok {
		// What it has used since the exchange began is not known. It is little, but if this look
		// is late, since the operator did not run, neither may the worker have run.
		w.cpu, w.checkedAt = max(0, cpu-min(time.Since(w.began), 2*watchInterval)), true
	}
	w.peak = max(w.peak, memory)
	elapsed := time.Since(w.began)
	switch {
	case w.stoppedTooLong(p.pid):
		p.kill(&exitError{CauseStalled, fmt.Sprintf("%s it was stopped by a signal for more than %s", w.bounds.phase, maxStopped)})
		return
	case ok && memory > w.bounds.memory:
		p.kill(&exitError{CauseMemory, fmt.Sprintf("%s it used more than %d MiB of memory", w.bounds.phase, w.bounds.memory>>20)})
		return
	case w.bounds.wallTime != 0 && elapsed > w.bounds.wallTime:
		p.kill(&exitError{CauseStalled, fmt.Sprintf("%s it was not ready within %s", w.bounds.phase, w.bounds.wallTime)})
		return
	case w.bounds.wallTime != 0:
	case elapsed > w.bounds.cpuTime && (!usageKnown || ok && cpu-w.cpu > w.bounds.cpuTime),
		elapsed > wallFactor*w.bounds.cpuTime && ok && cpu-w.cpu > w.bounds.cpuTime/2:
		p.kill(&exitError{CauseTime, fmt.Sprintf("%s it took longer than %s", w.bounds.phase, w.bounds.cpuTime)})
		return
	case elapsed > wallFactor*w.bounds.cpuTime:
		p.kill(&exitError{CauseStalled, fmt.Sprintf("%s it did not end within %s, with less than %s of processor time",
			w.bounds.phase, wallFactor*w.bounds.cpuTime, w.bounds.cpuTime/2)})
		return
	}
	w.timer.Reset(watchInterval)
}

// stoppedTooLong reports whether the process has been stopped for too long.
func (w *watch) stoppedTooLong(pid int) bool {
	switch {
	case !isStopped(pid):
		w.stopped = time.Time{}
	case w.stopped.IsZero():
		w.stopped = time.Now()
	}
	return !w.stopped.IsZero() && time.Since(w.stopped) > maxStopped
}
