package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster"
)

const inCascade = 25 // dependents of each kind, of which the process manages some forty in a second

// Something is killed while dependents of all kinds of owners are half done.
// One control plane serves all, in turn: two collectors would do each other's
// work.
func TestInMidCascadeDies(t *testing.T) {
	t.Parallel()
	binary := build(t)
	s := &stage{cluster: ownCluster(t, devcluster.Options{})}
	s.admin = s.cluster.RESTConfig()
	for name, dies := range map[string]func(*family){
		"the operator": func(f *family) {
			g := launch(f.T, binary, s.cluster, "--leader-elect=false")
			f.fall()
			for range 3 {
				g.decided(15)
				g.kill()
				g = launch(f.T, binary, s.cluster, "--leader-elect=false")
			}
		},
		"the leader": func(f *family) {
			leader := launch(f.T, binary, s.cluster, "--namespace="+f.ns)
			leader.leads()
			follower := launch(f.T, binary, s.cluster, "--namespace="+f.ns)
			f.fall()
			leader.decided(20)
			leader.kill()
			if follower.log.count(`"msg":"Decided"`) != 0 {
				f.Error("the follower has decided while another led")
			}
			follower.leads() // once the lease is over
		},
		"the API server": func(f *family) {
			g := launch(f.T, binary, s.cluster, "--namespace="+f.ns)
			f.fall()
			for range 2 {
				g.decided(20)
				if err := errors.Join(s.cluster.KillAPIServer(), s.cluster.StartAPIServer(f.Context())); err != nil {
					f.Fatal(err)
				}
			}
		},
		"the API server, for longer than the lease,": func(f *family) {
			g := launch(f.T, binary, s.cluster, "--namespace="+f.ns)
			f.fall()
			g.decided(20)
			if err := s.cluster.KillAPIServer(); err != nil {
				f.Fatal(err)
			}
			eventually(f, func() error { // the lease is lost after ten seconds
				if g.log.count(`"msg":"Lost the lease`) == 0 {
					return errors.New("it has not noticed")
				}
				return nil
			})
			if err := s.cluster.StartAPIServer(f.Context()); err != nil {
				f.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := worldOn(t, s).family(inCascade)
			began := time.Now()
			dies(f)
			f.end()
			t.Logf("it took %s", time.Since(began))
		})
	}
}
