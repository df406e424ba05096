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
)

const stopTime = time.Minute // that the operator is given to end

// operator is the process that is looked at.
type operator struct {
	process                 *exec.Cmd
	metrics, probes, pprofs string // addresses
	log                     *os.File
	exited                  chan struct{}
	err                     error // of its end, once exited is closed
}

// launch starts it, as it is deployed: with a canary and a lease. It keeps fewer
// decisions, so that the room for them is taken when the first quarter is over: what
// grows after that is something else.
func launch(s settings, kubeconfig string) (*operator, error) {
	addresses, err := freeAddresses(4)
	if err != nil {
		return nil, err
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
	if o.log, err = os.Create(filepath.Join(s.folder, "gleaner.log")); err != nil {
		return nil, err
	}
	o.process = exec.Command(s.binary, flags...)
	o.process.Stderr = o.log
	tieToParent(o.process)
	if err := o.process.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start Gleaner: %w", err), o.log.Close())
	}
	go func() {
		defer close(o.exited)
		o.err = errors.Join(o.process.Wait(), o.log.Close())
	}()
	return o, nil
}

func freeAddresses(n int) ([]string, error) {
	var addresses []string
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer listener.Close() // all at the end, or one would be found twice
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}

// ready waits until it is.
func (o *operator) ready(ctx context.Context) error {
	return eventually(ctx, func() error {
		_, err := get(ctx, "http://"+o.probes+"/readyz")
		return err
	})
}

// ended is why the process has ended; nil while it runs.
func (o *operator) ended() error {
	select {
	case <-o.exited:
		return fmt.Errorf("the operator has ended: %w; see its log", cmpErr(o.err))
	default:
		return nil
	}
}

func cmpErr(err error) error {
	if err == nil {
		return errors.New("exit code 0")
	}
	return err
}

// stop ends it in order.
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
		return fmt.Errorf("it still runs %s after SIGTERM", stopTime)
	}
}

func (o *operator) kill() {
	_ = o.process.Process.Kill() // or it has ended
	<-o.exited
}

// figures reads what it says of itself, after a collection of Go's garbage: what is in
// use then is what is held. The profile says by whom.
func (o *operator) figures(ctx context.Context) (sample, error) {
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

// sampleOf reads a sample out of metrics.
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
			return s, fmt.Errorf("read metrics: there is no %s", m.metric)
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
		err = fmt.Errorf("%s answers %s: %s", url, response.Status, body)
	}
	return string(body), err
}
