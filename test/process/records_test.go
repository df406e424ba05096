package process

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

var someStored = regexp.MustCompile(`(?m)^gleaner_records_stored_total [1-9]`)

// After kill -9 and a restart, what was decided before is known: through the operator, and from its
// store while no operator runs.
func TestRecords_SurviveKill(t *testing.T) {
	cluster := devtest.Shared(t)
	w := newEnv(t, cluster)
	at := "--archive=file://" + t.TempDir()
	g := startReady(t, cluster, at)
	w.waitForDeletion(w.createOrphan("dependent"))
	devtest.Eventually(t, timeout, func() error {
		if !someStored.MatchString(g.get("/metrics").body) {
			return errors.New("the deletion is not stored")
		}
		return nil
	})
	g.process.Kill()
	check := func(where string) error {
		for want, args := range map[string][]string{
			"OwnersAbsent":          {"records", "configmap/dependent"},
			"Gleaner deleted it at": {"explain", "configmap/dependent"},
		} {
			args = append(args, "-n", w.ns, "--kubeconfig="+cluster.Kubeconfig(), where)
			if out, err := exec.Command(gleaner.Path(t), args...).CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
				return fmt.Errorf("%v: %w\n%s", args, err, out)
			}
		}
		return nil
	}
	if err := check(at); err != nil {
		t.Errorf("without an operator: %v", err)
	}
	g = startReady(t, cluster, at)
	devtest.Eventually(t, timeout, func() error { return check("--endpoint=" + g.metrics) })
}
