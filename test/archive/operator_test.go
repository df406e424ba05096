package archive

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"testing"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/program"
)

// operator is a running operator process.
type operator struct {
	*testing.T
	*program.Process
	endpoint string // URL of /metrics and /debug/gc
	probes   string
	args     []string
}

// launch starts the operator with an archive. It is killed when the test ends.
func (b *testbed) launch(t *testing.T, location string) *operator {
	t.Helper()
	metrics, probes := devtest.FreeAddress(t), devtest.FreeAddress(t)
	args := []string{
		"run", "--kubeconfig=" + b.throughProxy(), "--archive=" + location, "--leader-elect=false", "--insecure-debug",
		"--metrics-bind-address=" + metrics, "--health-probe-bind-address=" + probes,
	}
	if b.companion {
		_, port, _ := net.SplitHostPort(b.webhook)
		args = append(args, "--collector=companion", "--canary-timeout=2s", "--webhook-bind-address="+b.webhook, "--webhook-url=https://localhost:"+port+"/veto")
	} else {
		args = append(args, "--canary-timeout=0")
	}
	g := &operator{T: t, endpoint: "http://" + metrics, probes: "http://" + probes, args: args}
	g.begin()
	return g
}

// begin starts the process, also once more after its end.
func (g *operator) begin() {
	g.Helper()
	process, err := program.Start(exec.Command(gleaner.Path(g.T), g.args...))
	if err != nil {
		g.Fatal(err)
	}
	g.Process = process
	g.Cleanup(func() {
		process.Kill()
		if g.Failed() {
			g.Logf("process %d:\n%s", process.PID(), process.Log.Tail(20))
		}
	})
}

// operate starts the operator, and waits until it is ready.
func (b *testbed) operate(t *testing.T, location string) *operator {
	t.Helper()
	g := b.launch(t, location)
	g.waitUntilReady()
	return g
}

func (g *operator) waitUntilReady() {
	g.Helper()
	devtest.Eventually(g.T, timeout, func() error {
		for _, url := range []string{g.probes + "/readyz", g.endpoint + "/metrics"} {
			response, err := http.Get(url)
			if err != nil {
				return errors.Join(err, g.Ended())
			}
			if err := response.Body.Close(); err != nil {
				return err
			}
			if response.StatusCode != http.StatusOK {
				return fmt.Errorf("%s: %s", url, response.Status)
			}
		}
		return nil
	})
}

// end stops the operator in order, so that its archive can be read.
func (g *operator) end() {
	g.Helper()
	if err := g.Stop(timeout); err != nil {
		g.Fatal(err)
	}
}

// run runs a command of gleaner as the user, and returns its output and exit code.
func (b *testbed) run(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), gleaner.Path(t), append(args, "--kubeconfig="+b.asUser())...)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return text.String(), cmd.ProcessState.ExitCode()
}

// restore restores through the operator's endpoint, which has to succeed.
func (g *operator) restore(b *testbed, args ...string) string {
	g.Helper()
	out, code := b.run(g.T, append([]string{"restore", "--endpoint=" + g.endpoint, "--yes"}, args...)...)
	if code != 0 {
		g.Fatalf("restore %v: exit code %d\n%s", args, code, out)
	}
	return out
}
