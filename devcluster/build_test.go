package devcluster

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
)

func TestBuild_UsesCachedBinaries(t *testing.T) {
	if _, err := Build(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	var progress bytes.Buffer
	binaries, err := Build(t.Context(), &progress)
	if err != nil {
		t.Fatal(err)
	}
	if progress.Len() > 0 {
		t.Errorf("built again: %s", &progress)
	}
	if binaries.Version != "v1.37.2" {
		t.Errorf("version is %q", binaries.Version)
	}
}

func TestOnlyProgramsThatAreMissingAreBuilt(t *testing.T) {
	target := t.TempDir()
	if err := os.WriteFile(filepath.Join(target, executable(Etcd)), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range missing(target, []program{etcd, apiServer, controllerManager, client}) {
		names = append(names, p.name)
	}
	if got, want := strings.Join(names, " "), "kube-apiserver kube-controller-manager kubectl"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCommandName(t *testing.T) {
	for path, want := range map[string]string{
		"go.etcd.io/etcd/server/v3":      "server",
		"k8s.io/kubernetes/cmd/kubectl":  "kubectl",
		"example.com/cmd/v3x":            "v3x",
		"example.com/versions/cmd/view2": "view2",
	} {
		if got := commandName(path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

func TestLockFile_IsExclusive(t *testing.T) {
	if !hasLocks {
		t.Skip("needs file locks")
	}
	path := filepath.Join(t.TempDir(), "lock")
	var holders atomic.Int32
	var all errgroup.Group
	for range 4 {
		all.Go(func() error {
			unlock, err := lockFile(t.Context(), path, &bytes.Buffer{})
			if err != nil {
				return err
			}
			defer unlock()
			if n := holders.Add(1); n != 1 {
				t.Errorf("%d hold the lock", n)
			}
			runtime.Gosched() // give the others a chance to be wrong
			holders.Add(-1)
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
}
