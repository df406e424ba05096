package devcluster

import (
	"bytes"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
)

func TestABuildThatIsThereIsUsedAtOnce(t *testing.T) {
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

func TestTheErrorOfABuildHoldsWhatGoSaid(t *testing.T) {
	module, err := locateModule()
	if err != nil {
		t.Fatal(err)
	}
	build := goBuild{module.dir, "nothing", []string{"build", "./no/such/package"}}
	err = buildOne(t.Context(), build, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "no/such/package") {
		t.Errorf("got %v", err)
	}
}

func TestOneHoldsTheBuildLockAtATime(t *testing.T) {
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
