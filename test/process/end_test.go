package process

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

func TestSIGTERM_FinishesWorkInHandAndTheNextOneGoesOn(t *testing.T) {
	const dependents = 300
	cluster := sharedCluster(t)
	w := newWorld(t, cluster)
	owner, live := w.make("owner"), w.make("live-owner")
	doomed := w.makeMany("doomed-", dependents, owner)
	w.makeMany("kept-", 20, live)
	w.makeMany("shared-", 20, owner, live)
	g := running(t, cluster, "--workers=4", "--api-qps=30") // slow enough to be stopped halfway
	w.delete(owner)
	devtest.Eventually(t, patience, func() error {
		if len(g.decided("")) < 20 {
			return errors.New("not in full swing yet")
		}
		return nil
	})
	g.stop()
	gone := without(doomed, w.left())
	if diff := cmp.Diff(gone, g.deleted(w.ns)); diff != "" {
		t.Errorf("what is gone (-) is not what it says it has deleted (+):\n%s", diff)
	}
	if len(gone) == dependents {
		t.Error("it has worked off its whole queue, and not just what it had in hand")
	}
	running(t, cluster)
	devtest.Eventually(t, patience, func() error {
		if gone := without(doomed, w.left()); len(gone) != dependents {
			return fmt.Errorf("%d of %d are gone", len(gone), dependents)
		}
		return nil
	})
	if n := len(w.left()); n != 1+20+20 {
		t.Errorf("of those with an owner that stays, %d are left", n)
	}
}

// without returns the names of the objects that are not left.
func without(objects []*corev1.ConfigMap, left map[string]bool) map[string]bool {
	names := map[string]bool{}
	for _, o := range objects {
		if !left[o.Name] {
			names[o.Name] = true
		}
	}
	return names
}

// deleted returns the names of a namespace's ConfigMaps that the process says
// it has deleted.
func (g *gleaner) deleted(namespace string) map[string]bool {
	names := map[string]bool{}
	for _, line := range g.decided("") {
		name, ok := strings.CutPrefix(fmt.Sprint(line["object"]), "ConfigMap "+namespace+"/")
		if ok && line["action"] == "Delete" && line["result"] == "Done" {
			names[name] = true
		}
	}
	return names
}

// releasedLease is how long a follower may take for a lease that was given back: less
// than the 15 seconds of a lease that was not, and more than the 4.4 that lie between
// its attempts at most.
const releasedLease = 10 * time.Second

// The other way to lose a leader, without its leave, is a matter of faults and
// takes a lease's time.
func TestLeaderElection_OneDecidesAndTheOtherTakesOverWarm(t *testing.T) {
	cluster := sharedCluster(t)
	w := newWorld(t, cluster)
	flags := []string{"--leader-elect", "--namespace=" + w.ns}
	leader := running(t, cluster, flags...)
	w.goes(w.orphaned("first")) // so it leads
	follower := running(t, cluster, flags...)
	second := w.orphaned("second")
	w.goes(second)
	leader.recorded(second.UID)
	if decided := follower.records(""); len(decided) != 0 {
		t.Errorf("the follower has decided %v, and the leader %v", decided, leader.records(""))
	}
	read := follower.reads()
	leader.stop()
	between := w.orphaned("between") // while nobody leads
	before := time.Now()
	w.goes(between)
	if took := time.Since(before); took > releasedLease {
		t.Errorf("the follower took over after %s", took)
	}
	follower.recorded(between.UID)
	// It was warm: a replica that begins reads each of some fifty types, and one that leads
	// no more than Gleaner's own.
	if again := follower.reads() - read; again > 20 || read < 40 {
		t.Errorf("the follower has made %v lists and watches before it took over, and %v for that", read, again)
	}
}

// reads is how often a process has listed a type or begun to watch one, which may be the same.
func (g *gleaner) reads() float64 {
	g.Helper()
	lists, _ := g.metric("gleaner_api_calls_total", `verb="list"`)
	watches, _ := g.metric("gleaner_api_calls_total", `verb="watch"`)
	return lists + watches
}

func TestAPIServer_ThatGoesAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	cluster := ownCluster(t)
	w := newWorld(t, cluster)
	g := running(t, cluster)
	w.goes(w.orphaned("before"))
	owner := w.make("owner")
	dependent := w.make("dependent", owner)
	away(t, cluster, 3*time.Second)
	if !g.lives() {
		t.Fatalf("it has ended with %s", g.cmd.ProcessState)
	}
	w.delete(owner)
	w.goes(dependent)
}

func TestAPIServer_ThatGoesAwayForLongerThanTheLeaseIsWaitedFor(t *testing.T) {
	t.Parallel()
	cluster := ownCluster(t)
	w := newWorld(t, cluster)
	g := running(t, cluster, "--leader-elect", "--canary-timeout=1s")
	w.goes(w.orphaned("before"))
	owner := w.make("owner")
	dependent := w.make("dependent", owner)
	away(t, cluster, 17*time.Second)
	if !g.lives() {
		t.Fatalf("it has ended with %s", g.cmd.ProcessState)
	}
	w.delete(owner)
	w.goes(dependent)
}

// away stops the API server for a while.
func away(t *testing.T, cluster *devcluster.Cluster, while time.Duration) {
	t.Helper()
	if err := cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(while)
	if err := cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
}
