package deploy

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/program"
)

// operator is a process that acts as a pod of the Deployment.
type operator struct {
	*testing.T
	process *program.Process
	metrics string // URL
	probes  string // URL
}

// startOperator runs the Deployment's container with a token of its service
// account until the test ends.
func startOperator(t *testing.T, cluster *devcluster.Cluster) *operator {
	t.Helper()
	return startPod(t, newPod(t, cluster, imageRoot(t), canChroot))
}

// startPod runs a pod.
func startPod(t *testing.T, p pod) *operator {
	t.Helper()
	metrics, probes := p.setAddresses(t)
	o := &operator{T: t, metrics: "https://" + metrics, probes: "http://" + probes}
	cmd := exec.Command(filepath.Join(p.root, "gleaner"), p.args...)
	cmd.Env = p.environment
	if p.confined {
		cmd.Path, cmd.Args[0] = "/gleaner", "/gleaner"
		chroot(cmd, p.root)
	}
	var err error
	if o.process, err = program.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		o.stop()
		if t.Failed() {
			t.Logf("%v:\n%s", cmd.Args, cmp.Or(o.process.Log.String(), "nothing"))
		}
	})
	return o
}

// stop sends SIGTERM, and waits for the end of the process.
func (o *operator) stop() {
	o.Helper()
	if err := o.process.Stop(timeout); err != nil {
		o.Error(err)
	}
}

// token returns a token of a service account.
func token(t *testing.T, cluster *devcluster.Cluster, namespace, account string) string {
	t.Helper()
	accounts := kubernetes.NewForConfigOrDie(cluster.RESTConfig()).CoreV1().ServiceAccounts(namespace)
	request, err := accounts.CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// client accepts any certificate: the process has a self-signed one.
var client = &http.Client{
	Timeout:   10 * time.Second,
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
}

// get sends a request.
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

// waitUntilReady waits until the probes of the Deployment succeed.
func (o *operator) waitUntilReady(paths ...string) {
	o.Helper()
	devtest.Eventually(o, timeout, func() error {
		if err := o.process.Ended(); err != nil {
			o.Fatal(err)
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

// waitForText waits until a path of the metrics address returns a text.
func (o *operator) waitForText(path, token, text string) {
	o.Helper()
	devtest.Eventually(o, timeout, func() error {
		code, body, err := get(o.T, o.metrics+path, token)
		if err == nil && (code != http.StatusOK || !strings.Contains(body, text)) {
			err = fmt.Errorf("%s: got %d without %s:\n%s", path, code, text, body)
		}
		return err
	})
}
