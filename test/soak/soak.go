package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/proxy"
)

const (
	primary   = "primary"
	companion = "companion"

	// timeout is generous: refused writes wait for up to a minute, and the API server
	// takes time to restart.
	timeout = 3 * time.Minute
)

// settings configure a run.
type settings struct {
	length, every     time.Duration
	collector, binary string
	folder            string
	waves, size       int
	attack            bool // run attacks of a tenant all the time
	progress          io.Writer
}

// testbed is the environment of a soak test.
type testbed struct {
	settings
	cluster  *devcluster.Cluster
	proxy    *proxy.Proxy
	operator *operator
	site     *fakeServer
	api      *api

	made, checked, finished atomic.Int64 // objects, and waves
	faults, policyChanges   atomic.Int64 // number of faults, and of changes of policies
	attacked                atomic.Int64 // number of submitted modules

	mu       sync.Mutex // covers wrongs
	problems []string
}

// soak runs the test. The error is one of the environment; errors of the operator are in
// the result.
func soak(ctx context.Context, s settings) (*result, error) {
	if err := os.MkdirAll(s.folder, 0o755); err != nil {
		return nil, err
	}
	controllers := devcluster.WithoutCollector()
	if s.collector == companion {
		controllers = nil
	}
	cluster, err := devcluster.Start(ctx, devcluster.Options{Controllers: controllers, Progress: s.progress})
	if err != nil {
		return nil, err
	}
	st := &testbed{settings: s, cluster: cluster}
	r, err := st.run(ctx)
	if stopped := cluster.Stop(); err == nil {
		err = stopped
	}
	return r, err
}

// run sets up the environment, and runs the test in it.
func (s *testbed) run(ctx context.Context) (_ *result, err error) {
	if s.proxy, err = proxy.Start(s.cluster); err != nil {
		return nil, err
	}
	defer s.proxy.Close()
	s.site = newFakeServer()
	defer s.site.close()
	if s.api, err = newAPI(s.cluster); err != nil {
		return nil, err
	}
	if err := s.api.createCRDs(ctx); err != nil {
		return nil, fmt.Errorf("define types: %w", err)
	}
	kubeconfig := filepath.Join(s.folder, "kubeconfig")
	if err := s.proxy.WriteKubeconfig(kubeconfig); err != nil {
		return nil, err
	}
	defer os.Remove(kubeconfig)
	if s.operator, err = launch(s.settings, kubeconfig); err != nil {
		return nil, err
	}
	defer s.operator.kill()
	if err := s.operator.waitUntilReady(ctx); err != nil {
		return nil, err
	}
	if err := s.applyPolicies(ctx); err != nil {
		return nil, fmt.Errorf("apply policies: %w", err)
	}
	r := &result{settings: s.settings}
	err = s.runAll(ctx, r)
	if stopped := s.operator.stop(); stopped != nil {
		s.problemf("the operator did not end as it should: %v", stopped)
	}
	r.made, r.waves, r.faults, r.policyChanges, r.problems = s.made.Load(), s.finished.Load(), s.faults.Load(), s.policyChanges.Load(), s.problems
	r.attacks = s.attacked.Load()
	return r, errors.Join(err, r.save())
}

// runAll runs everything until the time is over and the last waves are finished.
func (s *testbed) runAll(ctx context.Context, r *result) error {
	ending, end := context.WithTimeout(ctx, s.length) // no new waves begin after it
	defer end()
	group, playing := errgroup.WithContext(ctx)
	var waveGroup sync.WaitGroup
	for i := range s.waves {
		waveGroup.Add(1)
		group.Go(func() error {
			defer waveGroup.Done()
			for n := 0; ending.Err() == nil; n++ {
				if err := s.wave(playing, i, n); err != nil {
					return err
				}
				s.finished.Add(1)
			}
			return nil
		})
	}
	group.Go(func() error { return s.causeFailures(playing, ending) })
	group.Go(func() error { return s.changePolicies(playing, ending) })
	if s.settings.attack {
		group.Go(func() error { return s.attack(playing, ending) })
	}
	sampling, through := context.WithCancel(playing)
	go func() { waveGroup.Wait(); through() }()
	group.Go(func() error { return s.sample(sampling, r) })
	if err := group.Wait(); err != nil {
		return err
	}
	return s.checkDrained(ctx)
}

// problemf records an error of the operator.
func (s *testbed) problemf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	s.problems = append(s.problems, text)
	s.logf("WRONG: %s", text)
}

func (s *testbed) logf(format string, args ...any) {
	fmt.Fprintf(s.progress, "soak: "+format+"\n", args...)
}

// pause waits, unless one of the contexts ends before.
func pause(ctx, ending context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-ending.Done():
		return false
	case <-timer.C:
		return true
	}
}

// eventually retries until a function succeeds. It returns the last error.
func eventually(ctx context.Context, is func() error) error {
	return devtest.Retry(ctx, timeout, 50*time.Millisecond, is)
}
