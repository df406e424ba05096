// Package inspect runs the commands that inspect a cluster against a control
// plane with an operator, which runs as its service account with authentication, in a Pod
// that the commands reach by the API server's port-forward. Only that part of a kubelet
// is present.
package inspect

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/devcluster/freeport"
	"github.com/gleaner-dev/gleaner/test/program"
)

const (
	timeout   = 2 * time.Minute
	namespace = "gleaner-system"
)

var rewrite = flag.Bool("rewrite", false, "write the output of the commands into the stories")

// controllers are all except the built-in collector, and the node controller, which would
// miss the kubelet.
var controllers = append(devcluster.WithoutCollector(), "-node-lifecycle-controller")

// testbed is the environment that the tests share.
type testbed struct {
	folder   string
	cluster  *devcluster.Cluster
	kube     kubernetes.Interface
	metrics  string // the operator's address
	operator *program.Process
	kubelet  *http.Server
	binary   string
}

// gleaner is the program that the tests share.
var gleaner = program.Gleaner{Flags: []string{"-ldflags=-X main.version=v1.2.3"}}

var shared struct {
	once sync.Once
	*testbed
	err error
}

func TestMain(m *testing.M) {
	devtest.Run(m, devcluster.Options{}, stopShared, gleaner.Remove)
}

// stopShared stops the shared environment, if it was started.
func stopShared() error {
	if shared.testbed == nil {
		return nil
	}
	return shared.stop()
}

// sharedTestbed returns the shared environment, which the first test waits for.
func sharedTestbed(t *testing.T) *testbed {
	t.Helper()
	shared.once.Do(func() {
		shared.testbed = &testbed{binary: gleaner.Path(t)}
		shared.err = shared.start(t.Context())
	})
	if shared.err != nil {
		t.Fatalf("%v\n%s", shared.err, shared.output())
	}
	return shared.testbed
}

func (s *testbed) start(ctx context.Context) (err error) {
	if err := errors.Join(program.ReadFiles("../../config"), program.ReadFiles("../../crds/manifests")); err != nil {
		return err
	}
	if s.folder, err = os.MkdirTemp("", "gleaner-ask-"); err != nil {
		return err
	}
	if _, err := devcluster.Build(ctx, os.Stderr); err != nil { // the first build takes minutes
		return err
	}
	if s.cluster, err = devcluster.Start(ctx, devcluster.Options{Controllers: controllers}); err != nil {
		return err
	}
	if s.kube, err = kubernetes.NewForConfig(s.cluster.RESTConfig()); err != nil {
		return err
	}
	if _, err := s.cluster.Kubectl(ctx, "apply", "-k", "../../config/default"); err != nil {
		return err
	}
	if err := s.startOperator(ctx); err != nil {
		return err
	}
	return s.startKubelet(ctx)
}

// startOperator runs the operator as its service account.
func (s *testbed) startOperator(ctx context.Context) error {
	request, err := s.kube.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "gleaner", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	config := rest.AnonymousClientConfig(s.cluster.RESTConfig())
	config.BearerToken = request.Status.Token
	path := filepath.Join(s.folder, "operator")
	if err := devcluster.WriteKubeconfig(path, config); err != nil {
		return err
	}
	if s.metrics, err = freeport.Address(); err != nil {
		return err
	}
	s.operator, err = program.Start(exec.Command(s.binary, "run", "--kubeconfig="+path, "--namespace="+namespace, "--canary-timeout=2s",
		"--metrics-bind-address="+s.metrics, "--health-probe-bind-address=0"))
	return err
}

func (s *testbed) stop() error {
	var err error
	if s.operator != nil {
		err = s.operator.Stop(timeout)
	}
	if s.kubelet != nil {
		err = errors.Join(err, s.kubelet.Close())
	}
	if s.cluster != nil {
		err = errors.Join(err, s.cluster.Stop())
	}
	return errors.Join(err, os.RemoveAll(s.folder))
}

// output returns the operator's log.
func (s *testbed) output() string {
	if s.operator == nil {
		return "the operator was not started"
	}
	return cmp.Or(strings.TrimSpace(s.operator.Log.String()), "the operator has written nothing")
}
