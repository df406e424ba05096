// Package childtest helps to test that processes end with the process that started them.
package childtest

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// variable contains the name of the test that runs in the process to be killed.
const variable = "CHILDTEST_PARENT"

// KillParent runs start in another process of the test binary, passes its result, as JSON,
// to running, and kills that process. It returns the result. It skips the test on systems
// other than Linux, on which children continue to run.
func KillParent[T any](t *testing.T, start func() T, running func(T)) (result T) {
	t.Helper()
	if os.Getenv(variable) == t.Name() {
		if err := json.NewEncoder(os.Stdout).Encode(start()); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when the other process is gone
		t.Fatal("the process that started this one has ended")
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a parent-death signal")
	}
	parent := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	parent.Env = append(os.Environ(), variable+"="+t.Name())
	parent.Stderr = os.Stderr
	if _, err := parent.StdinPipe(); err != nil { // stays open
		t.Fatal(err)
	}
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	decodeErr := json.NewDecoder(stdout).Decode(&result)
	if decodeErr == nil {
		running(result)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed
	if decodeErr != nil {
		t.Fatalf("no result from the other process: %v", decodeErr)
	}
	return result
}

// IsRunning reports whether a process is running. One that has ended and was not waited for
// is not.
func IsRunning(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && !strings.Contains(string(status), "State:\tZ")
}
