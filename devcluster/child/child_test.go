package child

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// parentVariable is set in the process that starts a child and is killed.
const parentVariable = "CHILD_TEST_PARENT"

// TestHelperParent is no test of its own: TestStart_ChildEndsWithItsParent runs it in
// another process.
func TestHelperParent(t *testing.T) {
	if os.Getenv(parentVariable) == "" {
		t.Skip("runs only in a process of its own")
	}
	cmd := exec.Command("sleep", "60")
	if err := Start(cmd); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(os.Stdout, "child", cmd.Process.Pid)
	select {}
}

func TestStart_ChildrenSurviveTheThreadsOfTheirCallers(t *testing.T) {
	const callers = 4 // the first thread of a process never ends
	var locked, started sync.WaitGroup
	locked.Add(callers)
	ended := make(chan error, callers)
	var children [callers]*exec.Cmd
	for i := range children {
		cmd := exec.Command("sleep", "60")
		children[i] = cmd
		started.Go(func() {
			runtime.LockOSThread() // and never unlocks, so that the thread ends
			locked.Done()
			locked.Wait()
			if err := Start(cmd); err != nil {
				t.Error(err)
			}
		})
	}
	started.Wait()
	for _, cmd := range children {
		go func() { ended <- cmd.Wait() }()
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // fails if it has ended
			if err := <-ended; err == nil {
				t.Error("a child has ended by itself")
			}
		})
	}
	select {
	case err := <-ended:
		ended <- err
		t.Errorf("a child has ended: %v", err)
	case <-time.After(200 * time.Millisecond): // a signal would have arrived at once
	}
}

func TestStart_ChildEndsWithItsParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a parent-death signal")
	}
	parent := exec.Command(os.Args[0], "-test.run=^TestHelperParent$")
	parent.Env = append(os.Environ(), parentVariable+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "child %d", &pid)
	}
	if pid == 0 || !isRunning(pid) {
		t.Fatalf("the child is not running: process %d", pid)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed
	for deadline := time.Now().Add(10 * time.Second); isRunning(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the child is still running: process %d", pid)
		}
	}
}

// isRunning reports whether a process exists that is not a zombie.
func isRunning(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && !strings.Contains(string(status), "State:\tZ")
}
