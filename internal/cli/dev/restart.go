package dev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"syscall"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster/child"
	"github.com/gleaner-dev/gleaner/internal/cli/modes"
)

// restartTimeout is how long Gleaner may take to end.
const restartTimeout = 30 * time.Second

// archiveLocation returns the value of --archive.
func (s *Environment) archiveLocation() string {
	return (&url.URL{Scheme: "file", Path: s.archive}).String()
}

// Endpoint returns the URL of Gleaner's debug endpoints.
func (s *Environment) Endpoint() string { return "http://" + s.address }

// Restart stops Gleaner, and starts it again as a process of its own: nothing is left of what it had
// in memory. The program is the path of gleaner. It is for primary mode.
func (s *Environment) Restart(program string) error {
	if s.mode != modes.Primary {
		return errors.New("restart Gleaner: a companion needs its webhook's certificate")
	}
	if err := s.stopCollector(); err != nil {
		return err
	}
	kubeconfig, err := s.Cluster.KubeconfigFor("gleaner", "system:masters")
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(running, program, "run", "--kubeconfig="+kubeconfig, "--archive="+s.archiveLocation(), "--leader-elect=false",
		"--canary-timeout=1s", "--insecure-debug", "--metrics-bind-address="+s.address, "--health-probe-bind-address=0")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = restartTimeout
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := child.Start(cmd); err != nil {
		cancel()
		return fmt.Errorf("start Gleaner: %w; build it with make build", err)
	}
	s.cancel = cancel
	go func() { s.Done <- ended(running, cmd.Wait(), &log) }()
	return nil
}

// ended returns why a process has ended, unless it was told to.
func ended(running context.Context, err error, log *bytes.Buffer) error {
	select {
	case <-running.Done():
		return nil
	default:
	}
	return fmt.Errorf("gleaner run has ended: %w\n%s", err, log)
}

// stopCollector stops Gleaner. The control plane continues.
func (s *Environment) stopCollector() error {
	if s.cancel == nil {
		return nil
	}
	s.cancel()
	s.cancel, s.Collector = nil, nil
	return <-s.Done
}
