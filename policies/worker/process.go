package worker

import (
	"bytes"
	"errors"
	"fmt"
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
	// startTimeout is how long a worker may take to come up.
	startTimeout = 30 * time.Second

	// maxHello bounds the first frame of a worker, which says how it is confined.
	maxHello = 4 << 10

	// maxAnswer bounds a reply that carries no compiled module: a verdict and a log.
	maxAnswer = 2 << 20

	// keepBuffer is the most memory that is kept for the next frame, in bytes.
	keepBuffer = 256 << 10

	// niceness by which workers give way to the operator.
	niceCluster, niceNamespace, niceCompile = 2, 10, 12
)

// process is a worker. Between take and put it belongs to one call.
type process struct {
	cmd    *exec.Cmd
	pid    int
	conn   *os.File
	stderr *tail
	active []string // restrictions, see package confine
	born   time.Time

	sent     uint32              // requests
	in, out  []byte              // buffers of frames
	modules  map[uint32]struct{} // that it has loaded
	policies map[uint32]struct{} // that it has started
	calls    int                 // since it started
	dead     *deathError         // why the last exchange ended it; nil: it lives

	exited chan struct{} // closed once it has been waited for
	killed atomic.Pointer[deathError]
	kill1  sync.Once
	watch  watch
}

// starter starts processes from one thread, with which they end: a worker never outlives
// the operator, whatever ends that.
type starter struct {
	jobs chan func()
	done chan struct{}

	lock   sync.Mutex // covers what follows
	live   map[*process]struct{}
	closed bool
}

func newStarter() *starter {
	s := &starter{jobs: make(chan func()), done: make(chan struct{}), live: map[*process]struct{}{}}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread lasts as long as this goroutine
		defer close(s.done)
		for job := range s.jobs {
			job()
		}
	}()
	return s
}

// begin starts a process, unless it is too late for that.
func (s *starter) begin(p *process) error {
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
	s.live[p] = struct{}{}
	return nil
}

// reap waits for the end of a process.
func (s *starter) reap(p *process) {
	_ = p.cmd.Wait() // its end is told by ProcessState
	s.lock.Lock()
	delete(s.live, p)
	s.lock.Unlock()
	close(p.exited)
}

// kill ends all processes, and has none start any more.
func (s *starter) kill() {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.closed = true
	for p := range s.live {
		p.kill(&deathError{CauseClosed, errClosed.Error()})
	}
}

// close is called after kill, once all calls have returned.
func (s *starter) close() {
	close(s.jobs)
	<-s.done
}

// start starts a worker and waits until it is confined and ready.
func (s *starter) start(c Config, dir string, nice int) (*process, error) {
	p, err := s.launch(c, dir, nice, true)
	if errors.Is(err, errNotLaunched) {
		// Containers often may not create namespaces. The other restrictions remain. The next
		// worker tries again, since a lack of memory or processes looks the same.
		return s.launch(c, dir, nice, false)
	}
	return p, err
}

// errNotLaunched is a worker that could not be created at all.
var errNotLaunched = errors.New("start a worker process")

func (s *starter) launch(c Config, dir string, nice int, namespaces bool) (*process, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	args := append(c.Command[1:len(c.Command):len(c.Command)],
		"--memory="+strconv.FormatInt(c.Memory, 10), "--nice="+strconv.Itoa(nice), "--procs="+strconv.Itoa(min(2, runtime.GOMAXPROCS(0))))
	if dir != "" {
		args = append(args, "--cache-dir="+dir)
	}
	p := &process{
		conn: ours, stderr: &tail{}, born: time.Now(),
		modules: map[uint32]struct{}{}, policies: map[uint32]struct{}{}, exited: make(chan struct{}),
	}
	p.cmd = exec.Command(c.Command[0], args...)
	p.cmd.Env = []string{} // nil would be this process's own
	p.cmd.Dir = "/"
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = strings.NewReader(""), p.stderr, p.stderr // none is /dev/null, which need not be there
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.cmd.SysProcAttr = confine.Attributes(namespaces)
	err = s.begin(p)
	_ = theirs.Close() // or the worker's end would not end the connection
	if err != nil {
		ours.Close()
		return nil, err
	}
	p.pid = p.cmd.Process.Pid
	raiseOOMScore(p.pid)
	go s.reap(p)
	if err := p.hello(); err != nil {
		p.end(&deathError{CauseCrash, err.Error()})
		return nil, fmt.Errorf("start a worker process: %w", err)
	}
	return p, nil
}

// hello reads how the worker is confined.
func (p *process) hello() error {
	timer := time.AfterFunc(startTimeout, func() {
		p.kill(&deathError{CauseTime, fmt.Sprintf("it was not ready within %s", startTimeout)})
	})
	defer timer.Stop()
	frame, buffer, err := wire.Read(p.conn, maxHello, nil)
	p.in = buffer
	if err != nil {
		return p.death(err)
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

// exchange sends a request and reads its reply, whose byte strings are valid until the
// next exchange. The error is a *deathError: the worker is gone then.
func (p *process) exchange(m wire.Message, max int) (reply wire.Reply, err error) {
	p.sent++
	if p.out, err = wire.Write(p.conn, p.sent, m, p.out); err != nil {
		return reply, p.death(err)
	}
	frame, buffer, err := wire.Read(p.conn, max, p.in)
	p.in = buffer
	if err == nil {
		err = frame.Decode(&reply)
	}
	if err == nil && frame.ID != p.sent {
		err = fmt.Errorf("%w: a reply to request %d where request %d was sent", wire.ErrMalformed, frame.ID, p.sent)
	}
	if err != nil {
		return wire.Reply{}, p.death(err)
	}
	return reply, nil
}

// trim gives back the memory of frames that were unusually large.
func (p *process) trim() {
	if cap(p.in) > keepBuffer {
		p.in = nil
	}
	if cap(p.out) > keepBuffer {
		p.out = nil
	}
}

// death says why the worker has gone, and sees to it that it is gone.
func (p *process) death(err error) error {
	p.watch.end()
	if !isEnd(err) && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		p.kill(&deathError{CauseMalformed, "its worker process did not follow the protocol: " + err.Error()})
	} else {
		// It ends by itself, or is being killed; if it only closed the connection, it is helped.
		timer := time.AfterFunc(time.Second, func() {
			p.kill(&deathError{CauseMalformed, "its worker process closed the connection"})
		})
		<-p.exited
		timer.Stop()
	}
	<-p.exited
	if p.dead = p.killed.Load(); p.dead == nil {
		p.dead = p.post()
	}
	return p.dead
}

// post makes out from its exit why a worker that nobody here killed has ended.
func (p *process) post() *deathError {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	detail := "its worker process ended: " + p.cmd.ProcessState.String()
	if said := p.stderr.first(); said != "" {
		detail += ": " + said
	}
	if ok && status.Signaled() && (status.Signal() == syscall.SIGKILL || status.Signal() == syscall.SIGTERM || status.Signal() == syscall.SIGINT) {
		return &deathError{CauseKilled, detail}
	}
	return &deathError{CauseCrash, detail}
}

// kill ends the worker. The first cause counts.
func (p *process) kill(cause *deathError) {
	p.kill1.Do(func() {
		p.killed.Store(cause)
		_ = p.cmd.Process.Kill() // it may have ended already
	})
}

// end kills the worker, waits for its end and closes the connection.
func (p *process) end(cause *deathError) {
	p.kill(cause)
	<-p.exited
	_ = p.conn.Close()
}

// socketPair returns two ends of a connection. Both block, which saves a round through
// the network poller for each call.
func socketPair() (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(pair[0])
		syscall.CloseOnExec(pair[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(pair[0]), "worker"), os.NewFile(uintptr(pair[1]), "operator"), nil
}

// executable is this program: the very file that runs, which an upgrade may have replaced.
func executable() string {
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

// tail keeps the beginning of what a worker writes to standard error, which is why it
// crashed, and drops the rest.
type tail struct {
	lock sync.Mutex // covers kept
	kept []byte
}

// Write implements io.Writer.
func (t *tail) Write(data []byte) (int, error) {
	const most = 4 << 10
	t.lock.Lock()
	defer t.lock.Unlock()
	t.kept = append(t.kept, data[:min(len(data), max(0, most-len(t.kept)))]...)
	return len(data), nil
}

// first is the first line, which names the failure.
func (t *tail) first() string {
	t.lock.Lock()
	defer t.lock.Unlock()
	line, _, _ := bytes.Cut(t.kept, []byte("\n"))
	return strings.ToValidUTF8(strings.TrimSpace(string(line[:min(len(line), 200)])), "")
}
