// Package program builds the commands of this repository, and runs them as processes of
// tests.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster/child"
)

// root is the root of the repository, for packages two folders below it.
const root = "../.."

// sources are the files and folders from which cmd/gleaner is built.
var sources = []string{"go.mod", "go.sum", "cmd/gleaner", "crds", "hostabi", "internal", "operator", "policies", "sdk"}

// Gleaner is cmd/gleaner of this checkout, built when it is first used. The zero value is
// ready to use. Remove must be called at the end.
type Gleaner struct {
	Flags []string // of "go build"

	once   sync.Once
	folder string
	err    error
}

// Path returns the path of the program.
func (g *Gleaner) Path(t testing.TB) string {
	t.Helper()
	g.once.Do(func() {
		if g.folder, g.err = os.MkdirTemp("", "gleaner-test-"); g.err == nil { //nolint:usetesting // it outlives the test
			g.err = build(t.Context(), g.path(), g.Flags...)
		}
	})
	if g.err != nil {
		t.Fatal(g.err)
	}
	return g.path()
}

func (g *Gleaner) path() string { return filepath.Join(g.folder, "gleaner") }

// Remove removes the program, if it was built.
func (g *Gleaner) Remove() error {
	if g.folder == "" {
		return nil
	}
	return os.RemoveAll(g.folder)
}

// build builds cmd/gleaner from this checkout, with flags of "go build". Go caches the
// results of tests, and can't detect that they depend on a binary that another process
// builds: so it reads the sources. The settings are those of "make build", so that
// packages are compiled once.
func build(ctx context.Context, path string, flags ...string) error {
	for _, source := range sources {
		if err := ReadFiles(filepath.Join(root, source)); err != nil {
			return err
		}
	}
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-o", path}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/gleaner")...)
	cmd.Dir = root // a nested module has other versions
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build gleaner: %w\n%s", err, out)
	}
	return nil
}

// ReadFiles opens a file, or the files in a folder and its subfolders except tests. So Go
// does not use a cached test result if a file has changed that only another process reads.
func ReadFiles(folder string) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "testdata":
			return fs.SkipDir
		case entry.IsDir() || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := os.Open(path) // Go compares its size and time
		if err != nil {
			return err
		}
		return file.Close()
	})
}

// Process is a process that has been started. Its methods may be called concurrently.
type Process struct {
	Log Log // its standard error

	cmd    *exec.Cmd
	exited chan struct{} // closed after the end

	mu     sync.Mutex // covers killed
	killed bool
}

// Start starts cmd. Its standard error is written to Log. On Linux, it is killed when the test
// binary exits. Unless cmd.Env is set, its temporary files are removed when it has ended, also
// if it was killed.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	cmd.Stderr = &p.Log
	temp := ""
	if cmd.Env == nil {
		var err error
		if temp, err = os.MkdirTemp("", "gleaner-test-"); err != nil {
			return nil, err
		}
		cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	}
	if err := child.Start(cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", cmd.Path, err), os.RemoveAll(temp))
	}
	go func() {
		defer close(p.exited)
		_ = cmd.Wait()         // ProcessState has the result
		_ = os.RemoveAll(temp) // processes that it has started may still use it
	}()
	return p, nil
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// IsRunning reports whether the process is running.
func (p *Process) IsRunning() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Ended returns the error with which the process has ended, also if its exit code is 0; nil
// while it is running.
func (p *Process) Ended() error {
	if p.IsRunning() {
		return nil
	}
	return fmt.Errorf("process ended with %s", p.cmd.ProcessState)
}

// Kill kills the process, as a crash would, and waits for its end.
func (p *Process) Kill() {
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	_ = p.cmd.Process.Kill() // fails if the process has ended
	<-p.exited
}

// IsKilled reports whether Kill was called.
func (p *Process) IsKilled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

// Terminate sends SIGTERM.
func (p *Process) Terminate() error { return p.cmd.Process.Signal(syscall.SIGTERM) }

// Wait waits until the process has ended. It is an error if that takes too long, in which case
// the process is killed, or if it fails without having been killed.
func (p *Process) Wait(atMost time.Duration) error {
	select {
	case <-p.exited:
	case <-time.After(atMost):
		p.Kill()
		return fmt.Errorf("process did not end within %s", atMost)
	}
	if !p.cmd.ProcessState.Success() && !p.IsKilled() {
		return p.Ended()
	}
	return nil
}

// Stop sends SIGTERM, and waits until the process has ended. The error is that of Wait.
func (p *Process) Stop(atMost time.Duration) error {
	if err := p.Terminate(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return p.Wait(atMost)
}

// Log is the output of a process. Its methods may be called concurrently.
type Log struct {
	mu   sync.Mutex // covers text
	text bytes.Buffer
}

var _ io.Writer = &Log{}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all output so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Lines returns all whole lines so far.
func (l *Log) Lines() []string {
	lines := strings.Split(l.String(), "\n")
	return lines[:len(lines)-1]
}

// Count returns how often a text occurs.
func (l *Log) Count(text string) int { return strings.Count(l.String(), text) }

// Tail returns the last n lines without those of level info; for messages about failures.
func (l *Log) Tail(n int) string {
	lines := slices.DeleteFunc(l.Lines(), func(line string) bool { return strings.Contains(line, `"level":"info"`) })
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
