// Package attacks runs the gleaner command as a separate process on a real control
// plane on which Gleaner is installed with config, and attacks it as a tenant of one namespace
// can: with modules, policies and objects.
//
// During each attack a watchdog checks what others rely on: health
// checks succeed, collection continues in other namespaces, memory stays
// below the container's limit, an administrator's policy takes effect in time,
// and the operator ends on SIGTERM.
//
// A quick selection runs with all other tests. "make attack" runs all attacks, for
// longer, and in both modes.
package attacks

import (
	"context"
	"errors"
	"flag"
	"os"
	"sync"
	"testing"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/program"
)

var (
	long   = flag.Bool("long", false, "run all attacks, for longer, and in both modes")
	length = flag.Duration("length", 0, "duration of each attack; 0 means 4s, or 45s with -long")
)

// mode is the value of --collector.
type mode string

const (
	primary   mode = "primary"
	companion mode = "companion"
)

// gleaner is the program that the tests share.
var gleaner program.Gleaner

// shared is what the tests share, each part created on first use.
var shared struct {
	mu       sync.Mutex // covers the fields below
	clusters map[mode]*devcluster.Cluster
}

func TestMain(m *testing.M) {
	shared.clusters = map[mode]*devcluster.Cluster{}
	devtest.Run(m, devcluster.Options{}, cleanUp)
}

func cleanUp() error {
	err := gleaner.Remove()
	for _, cluster := range shared.clusters {
		err = errors.Join(err, cluster.Stop())
	}
	return err
}

// installed returns the control plane of a mode, with Gleaner installed.
func installed(t *testing.T, m mode) *devcluster.Cluster {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if cluster := shared.clusters[m]; cluster != nil {
		return cluster
	}
	cluster, err := install(t.Context(), m)
	if cluster != nil {
		shared.clusters[m] = cluster
	}
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

func install(ctx context.Context, m mode) (*devcluster.Cluster, error) {
	if err := errors.Join(program.ReadFiles("../../config"), program.ReadFiles("../../crds/manifests")); err != nil {
		return nil, err
	}
	// The first build takes minutes; without output it would look like a test that hangs.
	if _, err := devcluster.Build(ctx, os.Stderr); err != nil {
		return nil, err
	}
	folder, controllers := "../../config/default", []string(nil)
	if m == primary {
		folder, controllers = "../../config/primary", devcluster.WithoutCollector()
	}
	cluster, err := devcluster.Start(ctx, devcluster.Options{Controllers: controllers})
	if err != nil {
		return nil, err
	}
	_, err = cluster.Kubectl(ctx, "apply", "-k", folder)
	return cluster, err
}
