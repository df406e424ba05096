package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/freeport"
)

const companionName = "Gleaner as its companion"

// companion is the collector of kube-controller-manager with Gleaner as its companion.
type companion struct {
	upstream upstream
	gleaner  gleanerProcess
}

func newCompanion(cluster *devcluster.Cluster, s settings) *companion {
	return &companion{upstream: upstream{cluster}, gleaner: gleanerProcess{cluster: cluster, binary: s.binary, pprof: s.pprof}}
}

func (c *companion) name() string { return companionName }

func (c *companion) start(ctx context.Context, b budget) error {
	if err := c.upstream.start(ctx, b); err != nil {
		return err
	}
	address, err := freeport.Address()
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(address)
	c.gleaner.more = []string{"--collector=companion", "--canary-timeout=2s", "--webhook-bind-address=" + address, "--webhook-url=https://localhost:" + port + "/veto"}
	return c.gleaner.start(ctx, b)
}

func (c *companion) synced(ctx context.Context) (bool, error) { return c.gleaner.synced(ctx) }
func (c *companion) pid() int                                 { return c.gleaner.pid() }
func (c *companion) stop() error                              { return errors.Join(c.gleaner.stop(), c.upstream.stop()) }

// usage is the load on the API server so far.
type usage struct {
	calls    float64 // without watches, events, leases, and calls for Gleaner's own resources
	events   float64
	webhooks float64 // calls of Gleaner's webhook
	gleaner  float64 // calls by Gleaner, except watches and discovery
}

func (u usage) minus(before usage) usage {
	return usage{u.calls - before.calls, u.events - before.events, u.webhooks - before.webhooks, u.gleaner - before.gleaner}
}

// usage reads the metrics. Gleaner is nil if it does not run.
func (f companionBench) usage(ctx context.Context, gleaner *gleanerProcess) (u usage, err error) {
	content, err := f.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return u, fmt.Errorf("read the API server's metrics: %w", err)
	}
	isEvent := func(line string) bool { return strings.Contains(line, `,resource="events"`) }
	u.events, err = sum(content, "apiserver_request_total{", isEvent)
	if err != nil {
		return u, err
	}
	if u.calls, err = sum(content, "apiserver_request_total{", func(line string) bool {
		return !isEvent(line) && !containsAny(line, `verb="WATCH"`, `,resource=""`, `,resource="leases"`, `group="gleaner.dev"`)
	}); err != nil {
		return u, err
	}
	u.webhooks, err = sum(content, "apiserver_admission_webhook_request_total{", func(line string) bool {
		return strings.Contains(line, ".veto.gleaner.dev")
	})
	if err != nil || gleaner == nil {
		return u, err
	}
	if content, err = gleaner.metrics(ctx); err != nil {
		return u, err
	}
	u.gleaner, err = sum(content, "gleaner_api_calls_total{", func(line string) bool {
		return !containsAny(line, `verb="watch"`, `verb="discover"`)
	})
	return u, err
}

func containsAny(line string, parts ...string) bool {
	for _, part := range parts {
		if strings.Contains(line, part) {
			return true
		}
	}
	return false
}

// sum adds up the matching lines of metrics with a prefix.
func sum(content []byte, prefix string, counts func(line string) bool) (float64, error) {
	total := 0.0
	for line := range strings.Lines(string(content)) {
		if !strings.HasPrefix(line, prefix) || !counts(line) {
			continue
		}
		var value float64
		if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &value); err != nil {
			return 0, fmt.Errorf("read metrics: %q: %w", line, err)
		}
		total += value
	}
	return total, nil
}
