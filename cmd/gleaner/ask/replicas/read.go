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

// shortestRetry and longestRetry bound what a Retry-After header asks for.
const shortestRetry, longestRetry = 100 * time.Millisecond, 5 * time.Second

// read asks a replica, and asks again where it answers 429: it bounds how many clients
// it looks at in a second, and all those that reach it by port-forwards have one
// address.
func (r *Replica) read(ctx context.Context, path string) (answer, error) {
	if r.err != nil {
		return answer{}, r.err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		a, err := r.once(ctx, path)
		if err != nil || a.code != http.StatusTooManyRequests {
			return a, err
		}
		pause := time.NewTimer(wait.Jitter(a.retry, 1)) // clients that were refused together don't come again together
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return a, nil
		}
	}
}

func (r *Replica) once(ctx context.Context, path string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+path, nil)
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Accept", "application/json")
	asked := time.Now()
	response, err := r.client.Do(request)
	if err != nil {
		return answer{}, fmt.Errorf("ask it: %w", err)
	}
	defer response.Body.Close()
	a := answer{code: response.StatusCode, retry: retryOf(response.Header)}
	if there, err := http.ParseTime(response.Header.Get("Date")); err == nil { // in whole seconds
		ahead := there.Add(time.Second / 2).Sub(asked.Add(time.Since(asked) / 2))
		a.ahead = &ahead
	}
	if a.body, err = io.ReadAll(io.LimitReader(response.Body, mostAnswer)); err != nil {
		return answer{}, fmt.Errorf("read its answer: %w", err)
	}
	return a, nil
}

func retryOf(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil {
		return shortestRetry
	}
	return min(max(time.Duration(min(seconds, int(longestRetry/time.Second)))*time.Second, shortestRetry), longestRetry)
}
