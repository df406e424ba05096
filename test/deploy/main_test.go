// Package deploy installs what config has on a real API server, as people do,
// and runs the command there as the service account that it has in a pod, with
// the arguments of its Deployment. There is no kubelet, so pods are admitted
// and created, and never run.
package deploy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster"

	// What the command is made of. Go keeps the results of tests, and can't see
	// that these depend on what another process builds.
	_ "github.com/gleaner-dev/gleaner/operator/loop"
	_ "github.com/gleaner-dev/gleaner/policies/builtin"
)

const (
	patience = 2 * time.Minute // beside other work

	companion = "../../config/default"
	primary   = "../../config/primary"
	namespace = "gleaner-system"
	account   = "system:serviceaccount:gleaner-system:gleaner"
	version   = "v1.2.3-tested"
)

// noCollector are the controllers that run: all but the built-in collector.
var noCollector = []string{"*", "-garbage-collector-controller", "-storage-version-migrator-controller"}

// shared is what the tests share, each made when the first test asks for it.
var shared struct {
	folder  string // that binaries are put into
	build   sync.Once
	install sync.Once
	cluster *devcluster.Cluster
	err     error
}

func TestMain(m *testing.M) {
	shared.folder, shared.err = os.MkdirTemp("", "gleaner-deploy-")
	code := m.Run()
	if err := cleanUp(); err != nil {
		fmt.Fprintln(os.Stderr, "clean up:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func cleanUp() error {
	err := os.RemoveAll(shared.folder)
	if shared.cluster != nil {
		err = errors.Join(err, shared.cluster.Stop())
	}
	return err
}

// binary returns the path of the command, built from this checkout as it is for
// an image.
func binary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(shared.folder, "gleaner")
	shared.build.Do(func() {
		if shared.err == nil {
			shared.err = readSources("../../cmd/gleaner", ".go")
		}
		if shared.err == nil {
			shared.err = build(t.Context(), path, "../../cmd/gleaner")
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return path
}

// build builds a command that needs no libraries.
func build(ctx context.Context, path, sources string, environment ...string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X main.version="+version, "-o", path, sources)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), environment...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", sources, err, out)
	}
	return nil
}

// installed returns the control plane that the tests share, on which Gleaner is
// installed as the only collector.
func installed(t *testing.T) *devcluster.Cluster {
	t.Helper()
	shared.install.Do(func() {
		if shared.err != nil {
			return
		}
		if shared.cluster, shared.err = startCluster(t.Context(), noCollector...); shared.err != nil {
			return
		}
		_, shared.err = shared.cluster.Kubectl(t.Context(), "apply", "-k", primary)
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// bare returns a control plane of the test's own, with nothing installed. Without
// controllers to name, it has the built-in collector.
func bare(t *testing.T, controllers ...string) *devcluster.Cluster {
	t.Helper()
	cluster, err := startCluster(t.Context(), controllers...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

func startCluster(ctx context.Context, controllers ...string) (*devcluster.Cluster, error) {
	for folder, extension := range map[string]string{"../../config": ".yaml", "../../config/monitoring": ".json", "../../crds/manifests": ".yaml"} {
		if err := readSources(folder, extension); err != nil {
			return nil, err
		}
	}
	// The first build takes minutes and should not look like a test that hangs.
	if _, err := devcluster.Build(ctx, os.Stderr); err != nil {
		return nil, err
	}
	return devcluster.Start(ctx, devcluster.Options{Controllers: controllers})
}

// readSources reads files that other processes will, so that Go runs these
// tests again when one of them has changed.
func readSources(folder, extension string) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != extension {
			return err
		}
		_, err = os.ReadFile(path)
		return err
	})
}
