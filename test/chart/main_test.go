// Package chart tests the Helm chart in config/chart with Helm itself: what it installs is compared with the
// overlays for kustomize, and it is installed, upgraded and uninstalled on a real control plane.
package chart

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"helm.sh/helm/v4/pkg/cmd"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/program"
)

const (
	chart     = "../../config/chart"
	name      = "gleaner"
	namespace = "gleaner-system"
)

// gleaner is the program that the tests share.
var gleaner program.Gleaner

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // Helm logs each link in the chart
	devtest.Run(m, devcluster.Options{Controllers: devcluster.WithoutCollector()}, gleaner.Remove)
}

// helm runs a command of Helm's command line in this process. Helm keeps settings in variables, so no two at once.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	readChart(t)
	var out bytes.Buffer
	root, err := cmd.NewRootCmd(&out, args, func(bool) {})
	if err != nil {
		t.Fatal(err)
	}
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetContext(t.Context())
	err = root.Execute()
	return out.String(), err
}

// mustHelm runs a command that has to succeed.
func mustHelm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := helm(t, args...)
	if err != nil {
		t.Fatalf("helm %v: %v\n%s", args, err, out)
	}
	return out
}

// readChart reads what Helm reads, so that Go runs a test again when it changes.
func readChart(t *testing.T) {
	t.Helper()
	if err := errors.Join(program.ReadFiles("../../config"), program.ReadFiles("../../crds/manifests")); err != nil {
		t.Fatal(err)
	}
}

// set returns the arguments that set values.
func set(values ...string) (args []string) {
	for _, v := range values {
		args = append(args, "--set", v)
	}
	return args
}

func installed(t *testing.T, cluster *devcluster.Cluster, resource string) error {
	t.Helper()
	_, err := cluster.Kubectl(t.Context(), "get", resource, "-n", namespace)
	if err != nil {
		return fmt.Errorf("%s: %w", resource, err)
	}
	return nil
}
