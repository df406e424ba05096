package devcluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster/child"
)

// command is what to run and where its output goes.
type command struct {
	name string
	path string
	args []string
	log  string // appended to
	home string // working folder

	namespaces bool // of its own: see Program
	processors int  // 0: all
}

// process is one running component.
type process struct {
	name   string
	log    string
	handle *os.Process
	exited chan struct{} // closed after the process was reaped and state was set
	state  string        // how it ended
}

func launch(c command) (*process, error) {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", c.name, err)
	}
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(c.path, c.args...)
	cmd.Dir = c.home
	// Not the caller's environment: etcd takes settings from ETCD_ variables,
	// and a proxy is of no use on loopback.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.home}
	if c.processors > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("GOMAXPROCS=%d", c.processors))
	}
	cmd.Stdout, cmd.Stderr = log, log
	detach(cmd)
	if c.namespaces {
		if err := setNamespaces(cmd); err != nil {
			return nil, fmt.Errorf("run %s: %w", c.name, err)
		}
	}
	if err := child.Start(cmd); err != nil {
		return nil, fmt.Errorf("run %s: %w", c.name, err)
	}
	p := &process{name: c.name, log: c.log, handle: cmd.Process, exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		if err := cmd.Wait(); err != nil && cmd.ProcessState == nil {
			p.state = err.Error()
			return
		}
		p.state = cmd.ProcessState.String()
	}()
	return p, nil
}

// stop asks first, and returns when the process is gone.
func (p *process) stop() error {
	if err := terminate(p.handle); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	select {
	case <-p.exited:
		return nil
	case <-timer.C:
		return p.kill()
	}
}

func (p *process) kill() error {
	if !p.running() {
		return nil // its number may belong to another process by now
	}
	if err := killAll(p.handle); err != nil && p.running() {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.exited
	return nil
}

// failure describes a process that ended by itself. Only after exited.
func (p *process) failure() error {
	return p.withLog(fmt.Errorf("%s ended: %s", p.name, p.state))
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// withLog adds what the component said last, which mostly is the reason.
func (p *process) withLog(err error) error {
	data, readErr := os.ReadFile(p.log)
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	return fmt.Errorf("%w\nlast lines of %s:\n%s", err, p.log, lastLines(string(data), errorTailLines))
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
