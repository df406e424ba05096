package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster"
)

const dependentsPerKind = 25 // dependents of each kind, of which the process deletes about forty a second

// A component is killed in the middle of cascades of all kinds.
// The cases share one control plane and run in sequence: two collectors would do each other's
// work.
func TestCascade_Survives_WhenKilled(t *testing.T) {
	t.Parallel()
	s := &testbed{cluster: newCluster(t, devcluster.Options{})}
	s.admin = s.cluster.RESTConfig()
	for name, dies := range map[string]func(*cascade){
		"the operator": func(f *cascade) {
			g := startOperator(f.T, s.cluster, "--leader-elect=false")
			f.deleteOwners()
			for range 3 {
				g.waitForDecisions(15)
				g.process.Kill()
				g = startOperator(f.T, s.cluster, "--leader-elect=false")
			}
		},
		"the leader": func(f *cascade) {
			leader := startOperator(f.T, s.cluster, "--namespace="+f.ns)
			leader.waitForLeadership()
			follower := startOperator(f.T, s.cluster, "--namespace="+f.ns)
			f.deleteOwners()
			leader.waitForDecisions(20)
			leader.process.Kill()
			if follower.process.Log.Count(`"msg":"Decided"`) != 0 {
				f.Error("the follower made decisions while another process was the leader")
			}
			follower.waitForLeadership() // after the lease expires
		},
		"the API server": func(f *cascade) {
			g := startOperator(f.T, s.cluster, "--namespace="+f.ns)
			f.deleteOwners()
			for range 2 {
				g.waitForDecisions(20)
				if err := errors.Join(s.cluster.KillAPIServer(), s.cluster.StartAPIServer(f.Context())); err != nil {
					f.Fatal(err)
				}
			}
		},
		"the API server, for longer than the lease,": func(f *cascade) {
			g := startOperator(f.T, s.cluster, "--namespace="+f.ns)
			f.deleteOwners()
			g.waitForDecisions(20)
			if err := s.cluster.KillAPIServer(); err != nil {
				f.Fatal(err)
			}
			eventually(f, func() error { // the lease expires after ten seconds
				if g.process.Log.Count(`"msg":"Lost the lease`) == 0 {
					return errors.New("process has not noticed")
				}
				return nil
			})
			if err := s.cluster.StartAPIServer(f.Context()); err != nil {
				f.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newEnvOn(t, s).createCascade(dependentsPerKind)
			began := time.Now()
			dies(f)
			f.expectDone()
			t.Logf("took %s", time.Since(began))
		})
	}
}
