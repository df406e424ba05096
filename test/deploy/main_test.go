// Package deploy installs config on a real API server, as users do,
// and runs the command as the service account of the pod, with
// the arguments of the Deployment. There is no kubelet, so pods are admitted
// and created, but never run.
package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/program"
)

const (
	timeout = 2 * time.Minute // other tests run in parallel

	companion = "../../config/default"
	primary   = "../../config/primary"
	namespace = "gleaner-system"
	account   = "system:serviceaccount:gleaner-system:gleaner"
	version   = "v1.2.3-tested"
)

// shared is what the tests share, each part created on first use.
var shared struct {
	install sync.Once
	err     error
}

// gleaner is the program that the tests share, built as for the image.
var gleaner = program.Gleaner{Flags: []string{linkerFlags}}

func TestMain(m *testing.M) {
	devtest.Run(m, devcluster.Options{Controllers: devcluster.WithoutCollector()}, gleaner.Remove)
}

// linkerFlags are those of the image.
const linkerFlags = "-ldflags=-s -w -X main.version=" + version

// build builds a static command, also for another system.
func build(ctx context.Context, path, sources string, environment ...string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", linkerFlags, "-o", path, sources)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), environment...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", sources, err, out)
	}
	return nil
}

// sharedInstallation returns the shared control plane with Gleaner
// installed as the only collector.
func sharedInstallation(t *testing.T) *devcluster.Cluster {
	t.Helper()
	readManifests(t)
	cluster := devtest.Shared(t)
	shared.install.Do(func() { _, shared.err = cluster.Kubectl(t.Context(), "apply", "-k", primary) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return cluster
}

// startBareCluster starts a control plane for one test, with nothing installed. If no
// controllers are named, the built-in collector runs.
func startBareCluster(t *testing.T, controllers ...string) *devcluster.Cluster {
	t.Helper()
	readManifests(t)
	return devtest.Start(t, devcluster.Options{Controllers: controllers})
}

// readManifests reads what kubectl reads, so that Go runs a test again when it changes.
func readManifests(t *testing.T) {
	t.Helper()
	if err := errors.Join(program.ReadFiles("../../config"), program.ReadFiles("../../crds/manifests")); err != nil {
		t.Fatal(err)
	}
}
