package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster/child"
	"github.com/gleaner-dev/gleaner/devcluster/freeport"
)

const stopTime = time.Minute // for the operator to end

// operator is the operator process under test.
type operator struct {
	process                 *exec.Cmd
	metrics, probes, pprofs string // addresses
	log                     *os.File
	exited                  chan struct{}
	err                     error // result of the process, once exited is closed
}

// launch starts the operator as deployed: with a canary and a lease. It keeps fewer
// records, so that their memory is allocated within the first quarter: later
// growth has other causes.
func launch(s settings, kubeconfig string) (*operator, error) {
	var addresses [4]string
	for i := range addresses {
		var err error
		if addresses[i], err = freeport.Address(); err != nil {
			return nil, err
		}
	}
	o := &operator{metrics: addresses[0], probes: addresses[1], pprofs: addresses[2], exited: make(chan struct{})}
	flags := []string{
		"run", "--kubeconfig=" + kubeconfig, "--collector=" + s.collector, "--canary-timeout=2s", "--sweep-interval=30s", "--insecure-debug",
		"--records=1000", "--transcripts=1Mi",
		"--metrics-bind-address=" + o.metrics, "--health-probe-bind-address=" + o.probes, "--pprof-bind-address=" + o.pprofs,
	}
	if s.collector == companion {
		_, port, _ := net.SplitHostPort(addresses[3])
		flags = append(flags, "--webhook-bind-address="+addresses[3], "--webhook-url=https://localhost:"+port+"/veto")
	}
	var err error
	if o.log, err = os.Create(filepath.Join(s.folder, "gleaner.log")); err != nil {
		return nil, err
	}
	o.process = exec.Command(s.binary, flags...)
	o.process.Stderr = o.log
	if err := child.Start(o.process); err != nil {
		return nil, errors.Join(fmt.Errorf("start Gleaner: %w", err), o.log.Close())
	}
	go func() {
		defer close(o.exited)
		o.err = errors.Join(o.process.Wait(), o.log.Close())
	}()
	return o, nil
}

// waitUntilReady waits until the operator is ready.
func (o *operator) waitUntilReady(ctx context.Context) error {
	return eventually(ctx, func() error {
		_, err := get(ctx, "http://"+o.probes+"/readyz")
		return err
	})
}

// ended returns the error with which the process has ended; nil while it is running.
func (o *operator) ended() error {
	select {
	case <-o.exited:
		return fmt.Errorf("operator ended: %w; see its log", exitError(o.err))
	default:
		return nil
	}
}

func exitError(err error) error {
	if err == nil {
		return errors.New("exit code 0")
	}
	return err
}

// stop stops the operator gracefully.
func (o *operator) stop() error {
	if err := o.ended(); err != nil {
		return err
	}
	if err := o.process.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-o.exited:
		return o.err
	case <-time.After(stopTime):
		return fmt.Errorf("operator did not end within %s of SIGTERM", stopTime)
	}
}

func (o *operator) kill() {
	_ = o.process.Process.Kill() // fails if the process has ended
	<-o.exited
}

// readMetrics reads the operator's metrics after a garbage collection, so that the heap
// in use is live, and its heap profile.
func (o *operator) readMetrics(ctx context.Context) (sample, error) {
	heap, err := get(ctx, "http://"+o.pprofs+"/debug/pprof/heap?gc=1")
	if err != nil {
		return sample{}, err
	}
	text, err := get(ctx, "http://"+o.metrics+"/metrics")
	if err != nil {
		return sample{}, err
	}
	s, err := sampleOf(text)
	s.heap = heap
	return s, err
}

// sampleOf parses a sample from metrics.
func sampleOf(text string) (sample, error) {
	s := sample{values: map[string]float64{}}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		s.values[series]++
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		for _, m := range measures {
			if m.metric != name {
				continue
			}
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return s, fmt.Errorf("read metric %s: %w", name, err)
			}
			s.values[m.name] = v / m.unit
		}
	}
	for _, m := range measures {
		if _, ok := s.values[m.name]; !ok && m.metric != "" {
			return s, fmt.Errorf("read metrics: no %s", m.metric)
		}
	}
	return s, nil
}

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, body)
	}
	return string(body), err
}
