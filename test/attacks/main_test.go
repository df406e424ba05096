// Package attacks runs the built command, as a process of its own, on a real control
// plane on which Gleaner is installed as in config, and attacks it as a tenant does:
// with modules, policies and objects of one namespace.
//
// During each attack a watchdog checks what everybody else relies on: that health
// checks are answered, that collection in another namespace goes on, that memory stays
// below the limit of the container, that an administrator's policy is in force in time,
// and that the operator ends when it is told to.
//
// A quick selection runs with all other tests. "make attack" runs everything, for
// longer, and in both modes.
package attacks

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gleaner-dev/gleaner/devcluster"

	// What the command is made of. Go keeps the results of tests, and can't see
	// that these depend on what another process builds.
	_ "github.com/gleaner-dev/gleaner/operator/loop"
	_ "github.com/gleaner-dev/gleaner/policies/builtin"
)

var (
	long   = flag.Bool("long", false, "run all attacks, for longer, and in both modes")
	length = flag.Duration("length", 0, "how long each attack is watched; 0 is 4s, or 45s with -long")
)

// mode is how Gleaner runs: --collector.
type mode string

const (
	primary   mode = "primary"
	companion mode = "companion"
)

// shared is what the tests share, each made when the first test asks for it.
var shared struct {
	folder   string // for the binary
	build    sync.Once
	buildErr error

	mu       sync.Mutex // covers what follows
	clusters map[mode]*devcluster.Cluster
}

func TestMain(m *testing.M) {
	flag.Parse()
	shared.clusters = map[mode]*devcluster.Cluster{}
	shared.folder, shared.buildErr = os.MkdirTemp("", "gleaner-attacks-")
	code := m.Run()
	if err := cleanUp(); err != nil {
		fmt.Fprintln(os.Stderr, "clean up:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func cleanUp() error {
	err := os.RemoveAll(shared.folder)
	for _, cluster := range shared.clusters {
		err = errors.Join(err, cluster.Stop())
	}
	return err
}

// binary returns the path of the command, built from this checkout.
func binary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(shared.folder, "gleaner")
	shared.build.Do(func() {
		if shared.buildErr != nil {
			return
		}
		if shared.buildErr = readSources("../../cmd/gleaner/*.go"); shared.buildErr != nil {
			return
		}
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../../cmd/gleaner").CombinedOutput(); err != nil {
			shared.buildErr = fmt.Errorf("build gleaner: %w\n%s", err, out)
		}
	})
	if shared.buildErr != nil {
		t.Fatal(shared.buildErr)
	}
	return path
}

// installed returns the control plane of a mode, on which Gleaner is installed.
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
	if err := readSources("../../config/*/*.yaml", "../../crds/manifests/*.yaml"); err != nil {
		return nil, err
	}
	// The first build takes minutes and should not look like a test that hangs.
	if _, err := devcluster.Build(ctx, os.Stderr); err != nil {
		return nil, err
	}
	folder, controllers := "../../config/default", []string(nil)
	if m == primary {
		folder, controllers = "../../config/primary", []string{"*", "-garbage-collector-controller", "-storage-version-migrator-controller"}
	}
	cluster, err := devcluster.Start(ctx, devcluster.Options{Controllers: controllers})
	if err != nil {
		return nil, err
	}
	_, err = cluster.Kubectl(ctx, "apply", "-k", folder)
	return cluster, err
}

// readSources reads files that other processes will, so that Go runs these tests again
// when one of them has changed.
func readSources(patterns ...string) error {
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, file := range files {
			if _, err := os.ReadFile(file); err != nil {
				return err
			}
		}
	}
	return nil
}
