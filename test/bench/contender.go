package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/freeport"
)

// contender is a collector under measurement.
type contender interface {
	name() string
	start(ctx context.Context, b budget) error
	synced(ctx context.Context) (bool, error) // if unknown, always true
	pid() int
	stop() error
}

const (
	upstreamName = "kube-controller-manager"
	gleanerName  = "Gleaner"
)

// upstream is the built-in collector, alone in kube-controller-manager.
type upstream struct{ cluster *devcluster.Cluster }

func (u *upstream) name() string { return upstreamName }

func (u *upstream) start(ctx context.Context, _ budget) error {
	return u.cluster.StartControllerManager(ctx, "garbage-collector-controller")
}

func (u *upstream) synced(context.Context) (bool, error) { return true, nil }
func (u *upstream) pid() int                             { return u.cluster.PIDs()[devcluster.ControllerManager] }
func (u *upstream) stop() error                          { return u.cluster.StopControllerManager() }

// gleanerProcess is Gleaner as deployed, but without a canary.
type gleanerProcess struct {
	cluster *devcluster.Cluster
	binary  string
	pprof   string
	more    []string // flags
	env     []string // nil: that of this process
	address string
	process *exec.Cmd
}

func (o *gleanerProcess) name() string { return gleanerName }

func (o *gleanerProcess) start(_ context.Context, b budget) error {
	var err error
	if o.address, err = freeport.Address(); err != nil {
		return err
	}
	o.process = exec.Command(o.binary, append([]string{"run", "--kubeconfig=" + o.cluster.Kubeconfig(), "--canary-timeout=0", "--leader-elect=false",
		"--metrics-bind-address=" + o.address, "--insecure-debug", "--health-probe-bind-address=0", "--pprof-bind-address=" + o.pprof,
		fmt.Sprintf("--api-qps=%d", b.calls)}, o.more...)...)
	o.process.Env = o.env
	return o.process.Start()
}

func (o *gleanerProcess) synced(ctx context.Context) (bool, error) {
	response, err := o.get(ctx, "/debug/gc/synced")
	if err != nil {
		return false, nil // not listening yet
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK, nil
}

func (o *gleanerProcess) get(ctx context.Context, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.address+path, nil)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(request)
}

// metrics reads Gleaner's metrics.
func (o *gleanerProcess) metrics(ctx context.Context) ([]byte, error) {
	response, err := o.get(ctx, "/metrics")
	if err != nil {
		return nil, fmt.Errorf("read Gleaner's metrics: %w", err)
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

func (o *gleanerProcess) pid() int { return o.process.Process.Pid }

func (o *gleanerProcess) stop() error {
	if err := o.process.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop Gleaner: %w", err)
	}
	return o.process.Wait()
}

// resident returns a process's resident memory and its peak, in MiB.
func resident(pid int) (now, peak float64, err error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("read memory: %w", err)
	}
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		kib, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			continue
		}
		switch fields[0] {
		case "VmRSS:":
			now = kib / 1024
		case "VmHWM:":
			peak = kib / 1024
		}
	}
	return now, peak, nil
}

// resetPeak resets the peak of a process's resident memory.
func resetPeak(pid int) error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("reset peak memory: %w", err)
	}
	return nil
}

// cpu returns the CPU time that a process has used.
func cpu(pid int) (time.Duration, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	text := string(content)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("read CPU time: %q", text)
	}
	var ticks int64
	for _, field := range fields[11:13] { // user and system
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read CPU time: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100, nil
}
