package source

import (
	"context"
	"time"
)

// turn is the right of one fetch to download. It is waited for once, and only where
// something has to be downloaded.
type turn struct {
	fetcher *Fetcher
	source  Source
	host    string

	leave    func()
	deadline time.Time // of all downloads together
}

// online waits for the turn, if it has not come yet, and returns the context in which
// to download.
func (t *turn) online(ctx context.Context) (context.Context, context.CancelFunc, error) {
	limit := t.fetcher.limits.timeout(t.source)
	if t.leave == nil {
		patient, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		leave, err := t.fetcher.slots.take(patient, t.source, t.host)
		if err != nil {
			return nil, nil, err
		}
		t.leave, t.deadline = leave, time.Now().Add(limit)
	}
	ctx, cancel := context.WithDeadline(ctx, t.deadline)
	return ctx, cancel, nil
}

// end gives the turn to others.
func (t *turn) end() {
	if t.leave != nil {
		t.leave()
	}
}
