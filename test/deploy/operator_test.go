package deploy

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// operator is a process that stands in for a pod of the Deployment.
type operator struct {
	*testing.T
	cmd     *exec.Cmd
	log     *logbook
	metrics string // URL
	probes  string // URL
	exited  chan struct{}
}

// startOperator runs what the Deployment says, with a token of its service
// account, and is ended with the test.
func startOperator(t *testing.T, cluster *devcluster.Cluster) *operator {
	t.Helper()
	return startPod(t, makePod(t, cluster, imageOf(t), canConfine))
}

// startPod runs a pod.
func startPod(t *testing.T, p pod) *operator {
	t.Helper()
	metrics, probes := p.places(t)
	o := &operator{T: t, log: &logbook{}, metrics: "https://" + metrics, probes: "http://" + probes, exited: make(chan struct{})}
	o.cmd = exec.Command(filepath.Join(p.root, "gleaner"), p.args...)
	o.cmd.Env = p.environment
	o.cmd.Stderr = o.log
	tieToParent(o.cmd)
	if p.confined {
		o.cmd.Path, o.cmd.Args[0] = "/gleaner", "/gleaner"
		confine(o.cmd, p.root)
	}
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(o.exited)
		_ = o.cmd.Wait() // the state tells how it ended
	}()
	t.Cleanup(func() {
		o.stop()
		if t.Failed() {
			t.Logf("%v:\n%s", o.cmd.Args, o.log)
		}
	})
	return o
}

// stop asks the process to end, and waits for that.
func (o *operator) stop() {
	o.Helper()
	_ = o.cmd.Process.Signal(syscall.SIGTERM) // it may have ended, which the state tells
	select {
	case <-o.exited:
	case <-time.After(patience):
		o.Errorf("it has not ended %s after SIGTERM", patience)
		_ = o.cmd.Process.Kill()
		<-o.exited
	}
	if !o.cmd.ProcessState.Success() {
		o.Errorf("it has ended with %s", o.cmd.ProcessState)
	}
}

// token returns one of a service account.
func token(t *testing.T, cluster *devcluster.Cluster, namespace, account string) string {
	t.Helper()
	accounts := kubernetes.NewForConfigOrDie(cluster.RESTConfig()).CoreV1().ServiceAccounts(namespace)
	request, err := accounts.CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
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

// client takes any certificate: that of the process is made by itself.
var client = &http.Client{
	Timeout:   10 * time.Second,
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
}

// get asks for a URL.
func get(t *testing.T, url, token string) (code int, body string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// ready waits until the probes of the Deployment are content.
func (o *operator) ready(paths ...string) {
	o.Helper()
	devtest.Eventually(o, patience, func() error {
		select {
		case <-o.exited:
			o.Fatalf("it has ended with %s", o.cmd.ProcessState)
		default:
		}
		for _, path := range paths {
			code, body, err := get(o.T, o.probes+path, "")
			if err == nil && code != http.StatusOK {
				err = errors.New(body)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		return nil
	})
}

// says waits until the answer at a path of the metrics address has a text.
func (o *operator) says(path, token, text string) {
	o.Helper()
	devtest.Eventually(o, patience, func() error {
		code, body, err := get(o.T, o.metrics+path, token)
		if err == nil && (code != http.StatusOK || !strings.Contains(body, text)) {
			err = fmt.Errorf("%s answers %d without %s:\n%s", path, code, text, body)
		}
		return err
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

// String returns everything so far.
func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.text.String(), "nothing")
}
