// Package archive shows on real control planes, with the real programs, that what an archive policy
// holds is deleted only once it can be read back, and that it can be restored. The operator and
// gleaner restore are killed, and the stores fail.
//
// The tests share one control plane per mode, and run one after the other: two operators would
// do each other's work.
package archive

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/inprocess"
	"github.com/gleaner-dev/gleaner/test/program"
	"github.com/gleaner-dev/gleaner/test/proxy"
)

const timeout = 2 * time.Minute

var (
	// gleaner is the program that the tests share.
	gleaner program.Gleaner

	primary   = &testbed{options: devcluster.Options{Controllers: devcluster.WithoutCollector()}}
	companion = &testbed{companion: true}
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	devtest.Run(m, devcluster.Options{}, primary.stop, companion.stop, gleaner.Remove)
}

// testbed is the control plane for a mode, which is started when it is first used.
type testbed struct {
	companion bool // the built-in collector runs
	options   devcluster.Options

	once    sync.Once
	err     error
	cluster *devcluster.Cluster
	proxy   *proxy.Proxy // of the operator, and of commands that are to be killed
	user    *rest.Config // who deletes objects; not the operator
	folder  string       // of the kubeconfigs
	webhook string       // address of the companion
}

// inEachMode runs a test on each control plane.
func inEachMode(t *testing.T, test func(*testing.T, *testbed)) {
	t.Helper()
	for name, b := range map[string]*testbed{"primary": primary, "companion": companion} {
		t.Run(name, func(t *testing.T) { test(t, b.start(t)) })
	}
}

// start starts the control plane if it does not run yet.
func (b *testbed) start(t *testing.T) *testbed {
	t.Helper()
	b.once.Do(func() { b.err = b.init(t) })
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b
}

func (b *testbed) init(t *testing.T) (err error) {
	if _, err = devcluster.Build(t.Context(), os.Stderr); err != nil {
		return err
	}
	if b.cluster, err = devcluster.Start(t.Context(), b.options); err != nil {
		return err
	}
	if b.proxy, err = proxy.Start(b.cluster); err != nil {
		return err
	}
	if b.user, err = b.cluster.ConfigFor("user", "system:masters"); err != nil {
		return err
	}
	if b.folder, err = os.MkdirTemp("", "gleaner-test-"); err != nil { //nolint:usetesting // it outlives the test
		return err
	}
	b.webhook = devtest.FreeAddress(t)
	if err := errors.Join(b.proxy.WriteKubeconfig(b.throughProxy()), devcluster.WriteKubeconfig(b.asUser(), b.user)); err != nil {
		return err
	}
	return inprocess.CreateCRDs(t, b.cluster.RESTConfig())
}

func (b *testbed) throughProxy() string { return filepath.Join(b.folder, "proxy") }
func (b *testbed) asUser() string       { return filepath.Join(b.folder, "user") }

func (b *testbed) stop() error {
	if b.proxy != nil {
		b.proxy.Close()
	}
	var err error
	if b.cluster != nil {
		err = b.cluster.Stop()
	}
	return errors.Join(err, os.RemoveAll(b.folder))
}
