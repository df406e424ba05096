package child_test

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster/child"
	"github.com/gleaner-dev/gleaner/devcluster/child/childtest"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

func TestStart_ChildrenSurviveTheThreadsOfTheirCallers(t *testing.T) {
	const callers = 4 // the first thread of a process never ends
	var locked, started sync.WaitGroup
	locked.Add(callers)
	threads := make(chan int, callers)
	var children [callers]*echo
	for i := range children {
		started.Go(func() {
			runtime.LockOSThread() // and never unlocks, so that the thread ends
			threads <- threadID()
			locked.Done()
			locked.Wait()
			children[i] = startEcho(t)
		})
	}
	started.Wait()
	close(threads)
	for id := range threads {
		devtest.Eventually(t, 10*time.Second, func() error {
			if id != firstThread() && isThread(id) {
				return fmt.Errorf("thread %d has not ended", id)
			}
			return nil
		})
	}
	for _, c := range children {
		if c == nil {
			continue // reported by startEcho
		}
		if err := c.ask(); err != nil {
			t.Errorf("a child has ended with the thread that called Start: %v", err)
		}
	}
}

func TestStart_ChildEndsWithItsParent(t *testing.T) {
	pid := childtest.KillParent(t, func() int { return startEcho(t).cmd.Process.Pid }, func(pid int) {
		if !childtest.IsRunning(pid) {
			t.Errorf("the child is not running: process %d", pid)
		}
	})
	devtest.Eventually(t, 10*time.Second, func() error {
		if childtest.IsRunning(pid) {
			return fmt.Errorf("the child is still running: process %d", pid)
		}
		return nil
	})
}

// echo is a process that writes what it reads.
type echo struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

// startEcho starts a process. It is killed when the test ends. If it can't be started, the
// test fails, and nil is returned.
func startEcho(t *testing.T) *echo {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Error(err)
		return nil
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = child.Start(cmd)
	}
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails if it has ended
		_ = cmd.Wait()         // it was killed
	})
	return &echo{cmd, in, bufio.NewReader(out)}
}

// ask returns an error if the process does not respond.
func (e *echo) ask() error {
	if _, err := fmt.Fprintln(e.in, "ping"); err != nil {
		return err
	}
	_, err := e.out.ReadString('\n')
	return err
}
