package attacks

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

const (
	timeout   = 2 * time.Minute  // for what is not measured, next to other work
	graceTime = 30 * time.Second // the termination grace period of a pod

	operatorNamespace = "gleaner-system"
	account           = "system:serviceaccount:" + operatorNamespace + ":gleaner"
)

// operator is a running process of the command, with the rights that it has in a pod.
type operator struct {
	*testing.T
	cmd     *exec.Cmd
	log     *logbook
	metrics string // address
	probes  string // URL
	exited  chan struct{}
	killed  bool // by the test
}

// startOperator runs the command as its service account, and waits until it is ready.
// There is no canary and no leader election, which would only take time at the start.
// It ends with the test.
func startOperator(t *testing.T, cluster *devcluster.Cluster, m mode, flags ...string) *operator {
	t.Helper()
	o := launch(t, cluster, m, flags...)
	o.ready()
	return o
}

func launch(t *testing.T, cluster *devcluster.Cluster, m mode, flags ...string) *operator {
	t.Helper()
	probes := freeAddress(t)
	o := &operator{T: t, log: &logbook{}, metrics: freeAddress(t), probes: "http://" + probes, exited: make(chan struct{})}
	args := []string{
		"run", "--kubeconfig=" + kubeconfig(t, cluster), "--namespace=" + operatorNamespace, "--cache-dir=" + t.TempDir(),
		"--canary-timeout=0", "--leader-elect=false", "--collector=" + string(m),
		"--metrics-bind-address=" + o.metrics, "--health-probe-bind-address=" + probes,
	}
	if m == companion {
		address := freeAddress(t)
		_, port, _ := strings.Cut(address, ":")
		args = append(args, "--canary-timeout=2s", "--webhook-bind-address="+address, "--webhook-url=https://localhost:"+port+"/veto")
	}
	o.cmd = exec.Command(binary(t), append(args, flags...)...)
	o.cmd.Stderr = o.log
	tieToParent(o.cmd)
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(o.exited)
		_ = o.cmd.Wait() // the state tells how it ended
	}()
	t.Cleanup(func() {
		if o.alive() {
			o.kill()
		}
		if t.Failed() {
			t.Logf("process %d, %s:\n%s", o.cmd.Process.Pid, o.cmd.ProcessState, o.log.end())
		}
	})
	return o
}

// kubeconfig writes one for the operator's service account, which has a certificate in
// place of a token.
func kubeconfig(t *testing.T, cluster *devcluster.Cluster) string {
	t.Helper()
	config, err := cluster.ConfigFor(account, "system:serviceaccounts", "system:serviceaccounts:"+operatorNamespace)
	if err != nil {
		t.Fatal(err)
	}
	file := clientcmdapi.NewConfig()
	file.Clusters["attacked"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos["gleaner"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	file.Contexts["attacked"] = &clientcmdapi.Context{Cluster: "attacked", AuthInfo: "gleaner"}
	file.CurrentContext = "attacked"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// freeAddress returns an address on loopback that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// alive reports whether the process has not ended yet.
func (o *operator) alive() bool {
	select {
	case <-o.exited:
		return false
	default:
		return true
	}
}

// kill ends the process at once.
func (o *operator) kill() {
	o.killed = true
	_ = o.cmd.Process.Kill() // or it has ended
	<-o.exited
}

// terminate asks the process to end, and returns how long that took. It is an error if
// it takes longer than a pod is given.
func (o *operator) terminate() (time.Duration, error) {
	if !o.alive() {
		return 0, fmt.Errorf("it has ended before with %s", o.cmd.ProcessState)
	}
	began := time.Now()
	if err := o.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	select {
	case <-o.exited:
	case <-time.After(graceTime):
		o.kill()
		return time.Since(began), fmt.Errorf("it has not ended %s after SIGTERM", graceTime)
	}
	if !o.cmd.ProcessState.Success() {
		return time.Since(began), fmt.Errorf("it has ended with %s", o.cmd.ProcessState)
	}
	return time.Since(began), nil
}

// ready waits until /readyz succeeds.
func (o *operator) ready() {
	o.Helper()
	devtest.Eventually(o, timeout, func() error {
		if !o.alive() {
			o.Fatalf("it has ended with %s", o.cmd.ProcessState)
		}
		return o.probe("/readyz", time.Second)
	})
}

// probe asks for one of the probes.
func (o *operator) probe(path string, within time.Duration) error {
	client := &http.Client{Timeout: within, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(o.probes + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", path, response.Status)
	}
	return nil
}

// logbook keeps what a process writes.
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

// end returns the last lines that say that something is wrong.
func (l *logbook) end() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := slices.DeleteFunc(strings.Split(l.text.String(), "\n"), func(line string) bool { return strings.Contains(line, `"level":"info"`) })
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
