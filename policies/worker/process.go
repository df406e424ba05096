package worker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gleaner-dev/gleaner/policies/worker/confine"
	"github.com/gleaner-dev/gleaner/policies/worker/wire"
)

const (
	// maxHello bounds the first frame of a worker, which says how it is confined.
	maxHello = 4 << 10

	// maxReply bounds a reply that carries no compiled module: a verdict and a log.
	maxReply = 2 << 20

	// keepBuffer is the most memory that is kept for the next frame, in bytes.
	keepBuffer = 256 << 10

	// niceness by which workers give way to the operator.
	niceCluster, niceNamespace, niceCompile = 2, 10, 12
)

// process is a worker. Between take and put it belongs to one call.
type process struct {
	cmd    *exec.Cmd
	pid    int
	conn   stream
	stderr *tail
	active []string // restrictions, see package confine
	born   time.Time

	sent     uint32              // requests
	waiting  bool                // the last of them has no reply yet
	failed   error               // of the last exchange, which bounded has still to deal with
	in       wire.Reader         // of replies
	out      []byte              // buffer of requests
	modules  map[uint32]struct{} // that it has loaded
	policies map[uint32]struct{} // that it has started
	calls    int                 // since it started
	exit     *exitError          // why the last exchange ended it; nil: it lives

	exited   chan struct{} // closed once it has been waited for
	killed   atomic.Pointer[exitError]
	killOnce sync.Once
	watch    watch
}

// starter starts processes from one thread, with which they end: a worker never outlives
// the operator, whatever ends that.
type starter struct {
	jobs chan func()
	done chan struct{}

	lock    sync.Mutex // protects the following fields
	running map[*process]struct{}
	closed  bool
}

func newStarter() *starter {
	s := &starter{jobs: make(chan func()), done: make(chan struct{}), running: map[*process]struct{}{}}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread lasts as long as this goroutine
		defer close(s.done)
		for job := range s.jobs {
			job()
		}
	}()
	return s
}

// launchOnThread starts a process, unless it is too late for that.
func (s *starter) launchOnThread(p *process) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.closed {
		return errClosed
	}
	started := make(chan error, 1)
	s.jobs <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		return fmt.Errorf("%w: %w", errNotLaunched, err)
	}
	s.running[p] = struct{}{}
	return nil
}

// reap waits for the end of a process.
func (s *starter) reap(p *process) {
	_ = p.cmd.Wait() // its end is told by ProcessState
	s.lock.Lock()
	delete(s.running, p)
	s.lock.Unlock()
	close(p.exited)
}

// kill ends all processes, and has none start any more.
func (s *starter) kill() {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.closed = true
	for p := range s.running {
		p.kill(&exitError{CauseClosed, errClosed.Error()})
	}
}

// close is called after kill, once all calls have returned.
func (s *starter) close() {
	close(s.jobs)
	<-s.done
}

// launch says how a worker is started.
type launch struct {
	dir     string        // for compiled modules; empty: none are kept
	nice    int           // see niceCluster
	timeout time.Duration // it is to be ready
}

// start starts a worker and waits until it is confined and ready.
func (s *starter) start(c Config, l launch) (*process, error) {
	p, err := s.launch(c, l, true)
	if errors.Is(err, errNotLaunched) {
		// Containers often may not create namespaces. The other restrictions remain. The next
		// worker tries again, since a lack of memory or processes looks the same.
		return s.launch(c, l, false)
	}
	return p, err
}

// errNotLaunched is a worker that could not be created at all.
var errNotLaunched = errors.New("start a worker process")

func (s *starter) launch(c Config, l launch, namespaces bool) (*process, error) {
	own, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	args := append(c.Command[1:len(c.Command):len(c.Command)],
		"--memory="+strconv.FormatInt(c.Memory, 10), "--nice="+strconv.Itoa(l.nice), "--procs="+strconv.Itoa(min(2, runtime.GOMAXPROCS(0))))
	if l.dir != "" {
		args = append(args, "--cache-dir="+l.dir)
	}
	p := &process{
		conn: stream{own}, stderr: &tail{}, born: time.Now(),
		modules: map[uint32]struct{}{}, policies: map[uint32]struct{}{}, exited: make(chan struct{}),
	}
	p.cmd = exec.Command(c.Command[0], args...)
	p.cmd.Env = []string{} // nil would be this process's own
	p.cmd.Dir = "/"
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = strings.NewReader(""), p.stderr, p.stderr // none is /dev/null, which need not be there
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.cmd.SysProcAttr = confine.Attributes(namespaces)
	err = s.launchOnThread(p)
	_ = theirs.Close() // or the worker's end would not end the connection
	if err != nil {
		own.Close()
		return nil, err
	}
	p.pid = p.cmd.Process.Pid
	raiseOOMScore(p.pid)
	go s.reap(p)
	if err := p.readHello(bounds{wallTime: l.timeout, memory: c.Memory, phase: "while it started,"}); err != nil {
		p.end(&exitError{CauseCrash, err.Error()})
		return nil, fmt.Errorf("start a worker process: %w", err)
	}
	return p, nil
}

// readHello reads how the worker is confined.
func (p *process) readHello(b bounds) error {
	p.watch.begin(p, b)
	defer p.watch.end()
	frame, err := p.in.Read(deadlineConn{p.conn}, maxHello)
	if err != nil {
		return p.exitCause(err)
	}
	var hello wire.Reply
	if err := frame.Decode(&hello); err != nil {
		return err
	}
	p.active = append([]string(nil), hello.Imports...)
	if p.cmd.SysProcAttr != nil && usesNamespaces(p.cmd.SysProcAttr) {
		p.active = append(p.active, confine.Namespaces)
	}
	return nil
}

// quickTime is how long a call is waited for on the caller's own goroutine, which saves what
// it takes to hand it to another. Most take less. It also bounds each read and write of a
// stream, so no caller is ever held for longer.
const quickTime = 5 * time.Millisecond

// maxQuick bounds a request that is sent on the caller's goroutine, in bytes: the connection
// holds as much, read or not.
const maxQuick = 32 << 10

// quick sends a request and waits for quickTime for its reply, without a watch. If there is
// none by then, or anything goes wrong, answered is false, and bounded takes it up. The
// request has about size bytes.
func (p *process) quick(m wire.Message, size, max int) (reply wire.Reply, answered bool) {
	if size > maxQuick {
		return reply, false
	}
	p.watch.reset()
	if err := p.send(p.conn, m); err != nil {
		p.failed = err
		return reply, false
	}
	reply, err := p.receive(p.conn, max)
	if err != nil && !errors.Is(err, errTimeout) {
		p.failed = err
	}
	return reply, err == nil
}

// exchange sends a request, unless quick has, and reads its reply, whose byte strings are
// valid until the next one. The worker is killed if it exceeds the bounds. The error is a
// *exitError: the worker is gone then.
func (p *process) exchange(m wire.Message, max int, b bounds) (reply wire.Reply, err error) {
	p.watch.begin(p, b)
	defer p.watch.end()
	err = p.failed
	if err == nil && !p.waiting {
		err = p.send(deadlineConn{p.conn}, m)
	}
	if err == nil {
		reply, err = p.receive(deadlineConn{p.conn}, max)
	}
	if err != nil {
		return wire.Reply{}, p.exitCause(err)
	}
	return reply, nil
}

func (p *process) send(to io.Writer, m wire.Message) (err error) {
	p.sent++
	p.waiting = true
	p.out, err = wire.Write(to, p.sent, m, p.out)
	return err
}

// receive reads the reply to the last request. After errTimeout it may be tried again.
func (p *process) receive(from io.Reader, max int) (reply wire.Reply, err error) {
	frame, err := p.in.Read(from, max)
	if err == nil {
		err = frame.Decode(&reply)
	}
	if err == nil && frame.ID != p.sent {
		err = fmt.Errorf("%w: a reply to request %d where request %d was sent", wire.ErrMalformed, frame.ID, p.sent)
	}
	if err != nil {
		return wire.Reply{}, err
	}
	p.waiting = false
	return reply, nil
}

// trim gives back the memory of frames that were unusually large.
func (p *process) trim() {
	p.in.Trim(keepBuffer)
	if cap(p.out) > keepBuffer {
		p.out = nil
	}
}

// exitCause says why the worker has gone, and sees to it that it is gone.
func (p *process) exitCause(err error) error {
	p.watch.end()
	if !isEnd(err) && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		p.kill(&exitError{CauseMalformed, "its worker process did not follow the protocol: " + err.Error()})
	} else {
		// It ends by itself, or is being killed; if it only closed the connection, it is helped.
		timer := time.AfterFunc(time.Second, func() {
			p.kill(&exitError{CauseMalformed, "its worker process closed the connection"})
		})
		<-p.exited
		timer.Stop()
	}
	<-p.exited
	if p.exit = p.killed.Load(); p.exit == nil {
		p.exit = p.postMortem()
	}
	return p.exit
}

// threadLimitMessage is what the Go runtime says when the host's limit of processes is reached, which
// no module has a part in.
const threadLimitMessage = "failed to create new OS thread"

// postMortem determines from its exit why a worker that was not killed by kill has ended.
func (p *process) postMortem() *exitError {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	detail := "its worker process ended: " + p.cmd.ProcessState.String()
	if said := p.stderr.first(); said != "" {
		detail += ": " + said
	}
	if strings.Contains(detail, threadLimitMessage) {
		return &exitError{CauseKilled, detail}
	}
	if ok && status.Signaled() && (status.Signal() == syscall.SIGKILL || status.Signal() == syscall.SIGTERM || status.Signal() == syscall.SIGINT) {
		return &exitError{CauseKilled, detail}
	}
	return &exitError{CauseCrash, detail}
}

// kill ends the worker. The first cause counts.
func (p *process) kill(cause *exitError) {
	p.killOnce.Do(func() {
		p.killed.Store(cause)
		_ = p.cmd.Process.Kill() // it may have ended already
	})
}

// end kills the worker, waits for its end and closes the connection.
func (p *process) end(cause *exitError) {
	p.kill(cause)
	<-p.exited
	_ = p.conn.Close()
}

// executable is this program: the very file that runs, which an upgrade may have replaced.
func executable() string {
	if program := testProgram(); program != "" {
		return program
	}
	const running = "/proc/self/exe"
	if _, err := os.Stat(running); err == nil {
		return running
	}
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}
