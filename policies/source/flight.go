package source

import (
	"context"
	"fmt"
	"sync"
)

// flights are the fetches in progress. Unlike in a singleflight.Group, a fetch
// continues if the caller that started it leaves and others wait for it. It is
// canceled by the last caller to leave, which waits for its end.
type flights struct {
	mu       sync.Mutex // protects the map, and waiting in each flight
	inFlight map[string]*flight
}

type flight struct {
	waiters int
	cancel  context.CancelFunc
	done    chan struct{} // closed once the following fields are set
	fetched Fetched
	err     error
}

func (fs *flights) do(ctx context.Context, key string, fetch func(context.Context) (Fetched, error)) (Fetched, error) {
	f := fs.join(ctx, key, fetch)
	select {
	case <-f.done:
		fs.leave(key, f)
		return f.fetched, f.err
	case <-ctx.Done():
		if fs.leave(key, f) {
			<-f.done
		}
		return Fetched{}, fmt.Errorf("fetch module: %w", ctx.Err())
	}
}

// join joins the fetch in progress, or starts one.
func (fs *flights) join(ctx context.Context, key string, fetch func(context.Context) (Fetched, error)) *flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f, ok := fs.inFlight[key]; ok {
		f.waiters++
		return f
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &flight{waiters: 1, cancel: cancel, done: make(chan struct{})}
	if fs.inFlight == nil {
		fs.inFlight = map[string]*flight{}
	}
	fs.inFlight[key] = f
	go func() {
		defer close(f.done)
		f.fetched, f.err = fetch(ctx)
		fs.remove(key, f)
	}()
	return f
}

// remove removes a finished fetch, so that later callers start a new one.
func (fs *flights) remove(key string, f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.inFlight[key] == f {
		delete(fs.inFlight, key)
	}
}

// leave reports whether the caller was the last one. Then the fetch ends, and no caller can
// join it.
func (fs *flights) leave(key string, f *flight) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.waiters--
	if f.waiters > 0 {
		return false
	}
	if fs.inFlight[key] == f {
		delete(fs.inFlight, key)
	}
	f.cancel()
	return true
}
