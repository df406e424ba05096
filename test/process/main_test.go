// Package process runs the command that people run, as a process of its own,
// against a real control plane whose own collector is switched off. What it
// collects, and what it must not, is tested elsewhere: here it is what the
// process serves, says, leaves alone, and how it ends.
//
// Collectors on one control plane would collect for each other, so tests take
// turns, but for those that start a control plane of their own.
package process

import (
	"context"
	"errors"
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

// noCollector are the controllers that run: all but the built-in collector.
var noCollector = []string{"*", "-garbage-collector-controller", "-storage-version-migrator-controller"}

// shared is what the tests share, each made when the first test asks for it.
var shared struct {
	build   sync.Once
	folder  string // that the binary is put into
	start   sync.Once
	cluster *devcluster.Cluster
	err     error
}

func TestMain(m *testing.M) {
	shared.folder, shared.err = os.MkdirTemp("", "gleaner-process-")
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

// binary returns the path of the command, built from this checkout.
func binary(t *testing.T) string {
	t.Helper()
	shared.build.Do(func() {
		if shared.err != nil {
			return
		}
		if shared.err = readSources("../../cmd/gleaner"); shared.err != nil {
			return
		}
		build := exec.CommandContext(t.Context(), "go", "build", "-o", shared.folder+"/", "../../cmd/gleaner")
		if out, err := build.CombinedOutput(); err != nil {
			shared.err = fmt.Errorf("build gleaner: %w\n%s", err, out)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return filepath.Join(shared.folder, "gleaner")
}

// sharedCluster returns the control plane that the tests share.
func sharedCluster(t *testing.T) *devcluster.Cluster {
	t.Helper()
	shared.start.Do(func() {
		if shared.err == nil {
			shared.cluster, shared.err = startCluster(t.Context())
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// ownCluster returns a control plane that a test may do with as it likes.
func ownCluster(t *testing.T) *devcluster.Cluster {
	t.Helper()
	cluster, err := startCluster(t.Context())
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

func startCluster(ctx context.Context) (*devcluster.Cluster, error) {
	// The first build takes minutes and should not look like a test that hangs.
	if _, err := devcluster.Build(ctx, os.Stderr); err != nil {
		return nil, err
	}
	return devcluster.Start(ctx, devcluster.Options{Controllers: noCollector})
}

// readSources reads the files of a folder, so that Go runs these tests again
// when one of them has changed.
func readSources(folder string) error {
	files, err := filepath.Glob(folder + "/*.go")
	if err != nil {
		return err
	}
	for _, file := range files {
		if _, err := os.ReadFile(file); err != nil {
			return err
		}
	}
	return nil
}
