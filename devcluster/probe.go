package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

const probeTimeout = 5 * time.Second // of one request, within the caller's context

// prober asks the components about their health, as the cluster's admin.
type prober struct{ client *http.Client }

func newProber(cfg *rest.Config) (prober, error) {
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return prober{}, fmt.Errorf("configure probes: %w", err)
	}
	// One connection per request: a kept one would hide that a server is gone.
	transport := &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}
	return prober{&http.Client{Transport: transport, Timeout: probeTimeout}}, nil
}

func (p prober) get(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("ask %s: %w", url, err)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return fmt.Errorf("ask: %w", err) // which names the address
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("read answer of %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask %s: %s: %s", url, response.Status, strings.TrimSpace(string(answer)))
	}
	return nil
}

// await polls until all URLs answer 200. It gives up when the process ends or
// the context does.
func (p prober) await(ctx context.Context, of *process, urls ...string) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last error
	for _, url := range urls {
		for {
			if last = p.get(ctx, url); last == nil {
				break
			}
			select {
			case <-ticker.C:
			case <-of.exited:
				return of.failure()
			case <-ctx.Done():
				return of.withLog(fmt.Errorf("wait for %s: %w", of.name, errors.Join(ctx.Err(), last)))
			}
		}
	}
	return nil
}
