package devcluster_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/child/childtest"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

func TestStart_EndsWithParent(t *testing.T) {
	pids := childtest.KillParent(t, func() map[string]int {
		cluster, err := devcluster.Start(t.Context(), devcluster.Options{Dir: t.TempDir(), Controllers: []string{"namespace-controller"}})
		if err != nil {
			t.Fatal(err)
		}
		stopOnCleanup(t, cluster)
		return cluster.PIDs()
	}, func(pids map[string]int) {
		if len(pids) != 3 {
			t.Errorf("%d components were started, want 3: %v", len(pids), pids)
		}
		for name, pid := range pids {
			if !childtest.IsRunning(pid) {
				t.Errorf("%s is not running", name)
			}
		}
	})
	devtest.Eventually(t, 10*time.Second, func() error {
		for name, pid := range pids {
			if childtest.IsRunning(pid) {
				return fmt.Errorf("%s is still running as process %d", name, pid)
			}
		}
		return nil
	})
}
