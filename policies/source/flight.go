package source

import (
	"context"
	"fmt"
	"sync"
)

// flights are the fetches under way. In contrast to a singleflight.Group, one that
// has begun for a caller who leaves goes on for those who stay, and is ended by
// the last to leave, who waits for it.
type flights struct {
	mu  sync.Mutex // covers the map, and the waiting in each flight
	now map[string]*flight
}

type flight struct {
	waiting int
	cancel  context.CancelFunc
	done    chan struct{} // closed once what follows is there
	fetched Fetched
	err     error
}

func (fs *flights) do(ctx context.Context, key string, fetch func(context.Context) (Fetched, error)) (Fetched, error) {
	f := fs.board(ctx, key, fetch)
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

// board joins the flight that is under way, or starts it.
func (fs *flights) board(ctx context.Context, key string, fetch func(context.Context) (Fetched, error)) *flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f, ok := fs.now[key]; ok {
		f.waiting++
		return f
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &flight{waiting: 1, cancel: cancel, done: make(chan struct{})}
	if fs.now == nil {
		fs.now = map[string]*flight{}
	}
	fs.now[key] = f
	go func() {
		defer close(f.done)
		f.fetched, f.err = fetch(ctx)
		fs.landed(key, f)
	}()
	return f
}

// landed makes whoever asks from now on start anew.
func (fs *flights) landed(key string, f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.now[key] == f {
		delete(fs.now, key)
	}
}

// leave tells whether it was the last who left. Nobody can join any more then,
// and the flight ends.
func (fs *flights) leave(key string, f *flight) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.waiting--
	if f.waiting > 0 {
		return false
	}
	if fs.now[key] == f {
		delete(fs.now, key)
	}
	f.cancel()
	return true
}
