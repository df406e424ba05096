// Package ask runs the commands that ask a cluster, as people do, against a control
// plane with an operator: as its service account, behind authentication, in a Pod
// that the commands reach by the API server's port-forward. There is no kubelet but
// that part of one.
package ask

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
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
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gleaner-dev/gleaner/devcluster"

	// What the command is made of. Go keeps the results of tests, and can't see
	// that these depend on what another process builds.
	_ "github.com/gleaner-dev/gleaner/cmd/gleaner/ask/doctor"
	_ "github.com/gleaner-dev/gleaner/cmd/gleaner/ask/explain"
	_ "github.com/gleaner-dev/gleaner/cmd/gleaner/ask/rights"
	_ "github.com/gleaner-dev/gleaner/cmd/gleaner/ask/stuck"
	_ "github.com/gleaner-dev/gleaner/operator/loop"
)

const (
	patience  = 2 * time.Minute
	namespace = "gleaner-system"
)

var rewrite = flag.Bool("rewrite", false, "write the output of the commands into the stories")

// controllers are all but the built-in collector, and the one that would miss the
// kubelet.
var controllers = []string{"*", "-garbage-collector-controller", "-storage-version-migrator-controller", "-node-lifecycle-controller"}

// stage is what the tests share.
type stage struct {
	folder   string
	cluster  *devcluster.Cluster
	kube     kubernetes.Interface
	metrics  string // the operator's address
	operator *exec.Cmd
	log      *logbook
	kubelet  *http.Server
}

var shared struct {
	once sync.Once
	*stage
	err error
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if shared.stage != nil {
		if err := shared.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// staged returns the stage, which the first test waits for.
func staged(t *testing.T) *stage {
	t.Helper()
	shared.once.Do(func() {
		shared.stage = &stage{log: &logbook{}}
		shared.err = shared.start(t.Context())
	})
	if shared.err != nil {
		t.Fatalf("%v\n%s", shared.err, shared.log)
	}
	return shared.stage
}

func (s *stage) start(ctx context.Context) (err error) {
	for _, folder := range []string{"../../config", "../../crds/manifests", "../../cmd/gleaner"} {
		if err := readSources(folder); err != nil {
			return err
		}
	}
	if s.folder, err = os.MkdirTemp("", "gleaner-ask-"); err != nil {
		return err
	}
	if err := s.build(ctx); err != nil {
		return err
	}
	if _, err := devcluster.Build(ctx, os.Stderr); err != nil { // the first takes minutes
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

// readSources reads files that other processes will, so that Go runs these tests
// again when one of them has changed.
func readSources(folder string) error {
	files, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, f := range files {
		path := filepath.Join(folder, f.Name())
		if f.IsDir() {
			err = readSources(path)
		} else {
			_, err = os.ReadFile(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) binary() string { return filepath.Join(s.folder, "gleaner") }

func (s *stage) build(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags", "-X main.version=v1.2.3", "-o", s.binary(), "../../cmd/gleaner")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
}

// startOperator runs it as its service account.
func (s *stage) startOperator(ctx context.Context) error {
	request, err := s.kube.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "gleaner", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	admin := s.cluster.RESTConfig()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	path := filepath.Join(s.folder, "operator")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return err
	}
	if s.metrics, err = freeAddress(); err != nil {
		return err
	}
	s.operator = exec.Command(s.binary(), "run", "--kubeconfig="+path, "--namespace="+namespace, "--canary-timeout=2s",
		"--metrics-bind-address="+s.metrics, "--health-probe-bind-address=0")
	s.operator.Stderr = s.log
	tieToParent(s.operator)
	return s.operator.Start()
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

func (s *stage) stop() error {
	var err error
	if s.operator != nil && s.operator.Process != nil {
		err = errors.Join(s.operator.Process.Signal(os.Interrupt), s.operator.Wait())
	}
	if s.kubelet != nil {
		err = errors.Join(err, s.kubelet.Close())
	}
	if s.cluster != nil {
		err = errors.Join(err, s.cluster.Stop())
	}
	return errors.Join(err, os.RemoveAll(s.folder))
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
	return cmp.Or(strings.TrimSpace(l.text.String()), "nothing")
}

var _ io.Writer = &logbook{}
