package replicas

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// minRetryDelay and maxRetryDelay limit the delay of a Retry-After header.
const minRetryDelay, maxRetryDelay = 100 * time.Millisecond, 5 * time.Second

// read queries a replica, and retries on status 429: replicas limit the rate of clients by
// address, and all port-forwards share one.
func (r *Replica) read(ctx context.Context, path string) (reply, error) {
	if r.err != nil {
		return reply{}, r.err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for {
		a, err := r.once(ctx, path)
		if err != nil || a.code != http.StatusTooManyRequests {
			return a, err
		}
		pause := time.NewTimer(wait.Jitter(a.retry, 1)) // spread the retries of clients
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return a, nil
		}
	}
}

func (r *Replica) once(ctx context.Context, path string) (reply, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+path, nil)
	if err != nil {
		return reply{}, err
	}
	request.Header.Set("Accept", "application/json")
	start := time.Now()
	response, err := r.client.Do(request)
	if err != nil {
		return reply{}, fmt.Errorf("send request: %w", err)
	}
	defer response.Body.Close()
	a := reply{code: response.StatusCode, retry: retryDelay(response.Header), warning: response.Header.Get("Warning")}
	if there, err := http.ParseTime(response.Header.Get("Date")); err == nil { // with a resolution of one second
		ahead := there.Add(time.Second / 2).Sub(start.Add(time.Since(start) / 2))
		a.clockAhead = &ahead
	}
	if a.body, err = io.ReadAll(io.LimitReader(response.Body, maxResponseSize)); err != nil {
		return reply{}, fmt.Errorf("read response: %w", err)
	}
	return a, nil
}

func retryDelay(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil {
		return minRetryDelay
	}
	return min(max(time.Duration(min(seconds, int(maxRetryDelay/time.Second)))*time.Second, minRetryDelay), maxRetryDelay)
}
