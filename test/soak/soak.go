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
	"github.com/gleaner-dev/gleaner/test/proxy"
)

const (
	primary   = "primary"
	companion = "companion"

	// patience is generous: refused writes wait for up to a minute, and an API server
	// takes its time to come back.
	patience = 3 * time.Minute
)

// settings say what is to be run.
type settings struct {
	length, every     time.Duration
	collector, binary string
	folder            string
	waves, size       int
	attack            bool // by a tenant, all the time
	progress          io.Writer
}

// stage is what a soak happens on.
type stage struct {
	settings
	cluster  *devcluster.Cluster
	proxy    *proxy.Proxy
	operator *operator
	site     *site
	api      *api

	made, checked, finished atomic.Int64 // objects, and waves
	faults, turns           atomic.Int64 // that have happened, and changes of policies
	attacked                atomic.Int64 // modules that were submitted

	mu     sync.Mutex // covers wrongs
	wrongs []string
}

// soak runs it all. The error is one of the stage; what the operator did wrong is in
// the result.
func soak(ctx context.Context, s settings) (*result, error) {
	if err := os.MkdirAll(s.folder, 0o755); err != nil {
		return nil, err
	}
	controllers := []string{"*", "-garbage-collector-controller", "-storage-version-migrator-controller"}
	if s.collector == companion {
		controllers = nil
	}
	cluster, err := devcluster.Start(ctx, devcluster.Options{Controllers: controllers, Progress: s.progress})
	if err != nil {
		return nil, err
	}
	st := &stage{settings: s, cluster: cluster}
	r, err := st.run(ctx)
	if stopped := cluster.Stop(); err == nil {
		err = stopped
	}
	return r, err
}

// run sets the stage, and plays on it.
func (s *stage) run(ctx context.Context) (_ *result, err error) {
	if s.proxy, err = proxy.Start(s.cluster); err != nil {
		return nil, err
	}
	defer s.proxy.Close()
	s.site = newSite()
	defer s.site.close()
	if s.api, err = newAPI(s.cluster); err != nil {
		return nil, err
	}
	if err := s.api.define(ctx); err != nil {
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
	if err := s.operator.ready(ctx); err != nil {
		return nil, err
	}
	if err := s.govern(ctx); err != nil {
		return nil, fmt.Errorf("apply policies: %w", err)
	}
	r := &result{settings: s.settings}
	err = s.play(ctx, r)
	if stopped := s.operator.stop(); stopped != nil {
		s.wrong("the operator did not end as it should: %v", stopped)
	}
	r.made, r.waves, r.faults, r.turns, r.wrongs = s.made.Load(), s.finished.Load(), s.faults.Load(), s.turns.Load(), s.wrongs
	r.attacks = s.attacked.Load()
	return r, errors.Join(err, r.save())
}

// play has everything happen until the time is over and the last waves are through.
func (s *stage) play(ctx context.Context, r *result) error {
	ending, end := context.WithTimeout(ctx, s.length) // after which nothing new begins
	defer end()
	group, playing := errgroup.WithContext(ctx)
	var waving sync.WaitGroup
	for i := range s.waves {
		waving.Add(1)
		group.Go(func() error {
			defer waving.Done()
			for n := 0; ending.Err() == nil; n++ {
				if err := s.wave(playing, i, n); err != nil {
					return err
				}
				s.finished.Add(1)
			}
			return nil
		})
	}
	group.Go(func() error { return s.trouble(playing, ending) })
	group.Go(func() error { return s.turnover(playing, ending) })
	if s.settings.attack {
		group.Go(func() error { return s.attack(playing, ending) })
	}
	sampling, through := context.WithCancel(playing)
	go func() { waving.Wait(); through() }()
	group.Go(func() error { return s.sample(sampling, r) })
	if err := group.Wait(); err != nil {
		return err
	}
	return s.drained(ctx)
}

// wrong notes what must not have happened.
func (s *stage) wrong(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	s.wrongs = append(s.wrongs, text)
	s.say("WRONG: %s", text)
}

func (s *stage) say(format string, args ...any) {
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

// eventually tries until something is so. The error is the last one.
func eventually(ctx context.Context, is func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := is()
		if err == nil {
			return nil
		}
		if !pause(ctx, ctx, 50*time.Millisecond) {
			return err
		}
	}
}
