package attacks

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/program"
)

const (
	timeout   = 2 * time.Minute  // for steps that are not measured
	graceTime = 30 * time.Second // the termination grace period of a pod

	operatorNamespace = "gleaner-system"
	account           = "system:serviceaccount:" + operatorNamespace + ":gleaner"
)

// operator is a running operator process with the permissions of the pod.
type operator struct {
	*testing.T
	process *program.Process
	metrics string // address
	probes  string // URL
}

// startOperator runs the operator with its service account until the test ends, and waits until
// it is ready. Canary and leader election, which would delay the start, are
// disabled.
func startOperator(t *testing.T, cluster *devcluster.Cluster, m mode, flags ...string) *operator {
	t.Helper()
	o := launch(t, cluster, m, flags...)
	o.waitUntilReady()
	return o
}

func launch(t *testing.T, cluster *devcluster.Cluster, m mode, flags ...string) *operator {
	t.Helper()
	probes := devtest.FreeAddress(t)
	o := &operator{T: t, metrics: devtest.FreeAddress(t), probes: "http://" + probes}
	args := []string{
		"run", "--kubeconfig=" + kubeconfig(t, cluster), "--namespace=" + operatorNamespace, "--cache-dir=" + t.TempDir(),
		"--canary-timeout=0", "--leader-elect=false", "--collector=" + string(m),
		"--metrics-bind-address=" + o.metrics, "--health-probe-bind-address=" + probes,
	}
	if m == companion {
		address := devtest.FreeAddress(t)
		_, port, _ := strings.Cut(address, ":")
		args = append(args, "--canary-timeout=2s", "--webhook-bind-address="+address, "--webhook-url=https://localhost:"+port+"/veto")
	}
	var err error
	if o.process, err = program.Start(exec.Command(gleaner.Path(t), append(args, flags...)...)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if o.process.IsRunning() {
			o.process.Kill()
		}
		if t.Failed() {
			t.Logf("process %d, %v:\n%s", o.process.PID(), o.process.Ended(), o.process.Log.Tail(20))
		}
	})
	return o
}

// kubeconfig writes a kubeconfig for the operator's service account, with a certificate
// instead of a token.
func kubeconfig(t *testing.T, cluster *devcluster.Cluster) string {
	t.Helper()
	path, err := cluster.KubeconfigFor(account, "system:serviceaccounts", "system:serviceaccounts:"+operatorNamespace)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// terminate sends SIGTERM, and returns how long the process took to end. It is an error if
// this is longer than the termination grace period.
func (o *operator) terminate() (time.Duration, error) {
	if err := o.process.Ended(); err != nil {
		return 0, err
	}
	began := time.Now()
	err := o.process.Stop(graceTime)
	return time.Since(began), err
}

// waitUntilReady waits until /readyz succeeds.
func (o *operator) waitUntilReady() {
	o.Helper()
	devtest.Eventually(o, timeout, func() error {
		if err := o.process.Ended(); err != nil {
			o.Fatal(err)
		}
		return o.probe("/readyz", time.Second)
	})
}

// probe requests a health endpoint.
func (o *operator) probe(path string, within time.Duration) error {
	client := &http.Client{Timeout: within, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(o.probes + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: got %s", path, response.Status)
	}
	return nil
}
