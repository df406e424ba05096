package devcluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// parentVariable names the folder of the cluster whose parent is killed.
const parentVariable = "DEVCLUSTER_TEST_PARENT"

// TestHelperParent is no test of its own: TestStart_EndsWithParent
// runs it in another process.
func TestHelperParent(t *testing.T) {
	dir := os.Getenv(parentVariable)
	if dir == "" {
		t.Skip("only in a process made for it")
	}
	cluster, err := devcluster.Start(t.Context(), devcluster.Options{Dir: dir, Controllers: []string{"namespace-controller"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(cluster.PIDs()); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the other process kills this one, or is gone itself
	stopOnCleanup(t, cluster)
}

func TestStart_EndsWithParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a parent-death signal")
	}
	parent := exec.Command(os.Args[0], "-test.run=^TestHelperParent$")
	parent.Env = append(os.Environ(), parentVariable+"="+t.TempDir())
	parent.Stderr = os.Stderr
	if _, err := parent.StdinPipe(); err != nil { // which stays open
		t.Fatal(err)
	}
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pids map[string]int
	decodeErr := json.NewDecoder(stdout).Decode(&pids)
	for name, pid := range pids {
		if !isAlive(pid) {
			t.Errorf("%s does not run", name)
		}
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // always tells of the signal
	if decodeErr != nil || len(pids) != 3 {
		t.Fatalf("parent did not start three components: %v, %v", pids, decodeErr)
	}
	devtest.Eventually(t, 10*time.Second, func() error {
		for name, pid := range pids {
			if isAlive(pid) {
				return fmt.Errorf("%s still runs as process %d", name, pid)
			}
		}
		return nil
	})
}

// isAlive does not count a process that is dead and not yet waited for.
func isAlive(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "stat"))
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(state, "Z")
}
