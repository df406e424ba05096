package faults

import (
	"fmt"
	"net/http"
	"os/exec"
	"testing"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/program"
)

// operator is a running operator process.
type operator struct {
	*testing.T
	process *program.Process
	probes  string
}

// startOperator starts the operator, with a low write rate so that it can be stopped in the middle,
// and waits until it is ready. It is killed when the test ends.
func startOperator(t *testing.T, cluster *devcluster.Cluster, flags ...string) *operator {
	t.Helper()
	g := &operator{T: t, probes: devtest.FreeAddress(t)}
	var err error
	g.process, err = program.Start(exec.Command(gleaner.Path(t), append([]string{
		"run", "--kubeconfig=" + cluster.Kubeconfig(), "--canary-timeout=0", "--workers=4", "--api-qps=40",
		"--metrics-bind-address=0", "--health-probe-bind-address=" + g.probes,
	}, flags...)...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.process.Kill()
		if t.Failed() {
			t.Logf("process %d:\n%s", g.process.PID(), g.process.Log.Tail(40))
		}
	})
	eventually(t, func() error {
		response, err := http.Get("http://" + g.probes + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz: %s", response.Status)
		}
		return nil
	})
	return g
}

// waitForDecisions waits until the process has logged writes of n objects.
func (g *operator) waitForDecisions(n int) {
	g.Helper()
	eventually(g, func() error {
		if got := g.process.Log.Count(`"result":"Done"`); got < n {
			return fmt.Errorf("%d objects are logged, want %d", got, n)
		}
		return nil
	})
}

// waitForLeadership waits until the process is the leader.
func (g *operator) waitForLeadership() {
	g.Helper()
	eventually(g, func() error {
		if g.process.Log.Count(`"msg":"Leading"`) == 0 {
			return fmt.Errorf("process is not the leader")
		}
		return nil
	})
}
