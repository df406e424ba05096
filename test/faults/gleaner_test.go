package faults

import (
	"bytes"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gleaner-dev/gleaner/devcluster"
)

// gleaner is a running process of the command.
type gleaner struct {
	*testing.T
	cmd    *exec.Cmd
	log    *logbook
	probes string
	exited chan struct{}
}

// build builds the command from this checkout.
func build(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", folder+"/", "../../cmd/gleaner").CombinedOutput(); err != nil {
		t.Fatalf("build gleaner: %v\n%s", err, out)
	}
	return filepath.Join(folder, "gleaner")
}

// launch runs the command, so slowly that it can be stopped halfway, and waits
// until it is ready. It is killed with the test.
func launch(t *testing.T, binary string, cluster *devcluster.Cluster, flags ...string) *gleaner {
	t.Helper()
	g := &gleaner{T: t, log: &logbook{}, probes: freeAddress(t), exited: make(chan struct{})}
	g.cmd = exec.Command(binary, append([]string{
		"run", "--kubeconfig=" + cluster.Kubeconfig(), "--canary-timeout=0", "--workers=4", "--api-qps=40",
		"--metrics-bind-address=0", "--health-probe-bind-address=" + g.probes,
	}, flags...)...)
	g.cmd.Stderr = g.log
	tieToParent(g.cmd)
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(g.exited)
		_ = g.cmd.Wait() // it is killed
	}()
	t.Cleanup(func() {
		g.kill()
		if t.Failed() {
			t.Logf("process %d:\n%s", g.cmd.Process.Pid, g.log.end())
		}
	})
	eventually(t, func() error {
		response, err := http.Get("http://" + g.probes + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz answers %s", response.Status)
		}
		return nil
	})
	return g
}

// kill ends the process as a crash would, and waits for its end.
func (g *gleaner) kill() {
	select {
	case <-g.exited:
		return
	default:
	}
	if err := g.cmd.Process.Kill(); err != nil {
		g.Error(err)
	}
	<-g.exited
}

// decided waits until the process has written about so many objects.
func (g *gleaner) decided(n int) {
	g.Helper()
	eventually(g, func() error {
		if got := g.log.count(`"result":"Done"`); got < n {
			return fmt.Errorf("it has written about %d objects, not %d", got, n)
		}
		return nil
	})
}

// leads waits until the process leads.
func (g *gleaner) leads() {
	g.Helper()
	eventually(g, func() error {
		if g.log.count(`"msg":"Leading"`) == 0 {
			return fmt.Errorf("it does not lead")
		}
		return nil
	})
}

// logbook keeps what a process says.
type logbook struct {
	mu   sync.Mutex // covers text
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// end returns the last lines.
func (l *logbook) end() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.Split(l.text.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}
