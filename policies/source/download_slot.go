package source

import (
	"context"
	"time"
)

// downloadSlot is the slot of one fetch. It is acquired once, and only if something has to
// be downloaded.
type downloadSlot struct {
	fetcher *Fetcher
	source  Source
	host    string

	leave    func()
	deadline time.Time // of all downloads of the fetch
}

// acquire acquires the slot, if necessary, and returns the context for a download.
func (t *downloadSlot) acquire(ctx context.Context) (context.Context, context.CancelFunc, error) {
	limit := t.fetcher.limits.timeout(t.source)
	if t.leave == nil {
		patient, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		leave, err := t.fetcher.slots.acquire(patient, t.source, t.host)
		if err != nil {
			return nil, nil, err
		}
		t.leave, t.deadline = leave, time.Now().Add(limit)
	}
	ctx, cancel := context.WithDeadline(ctx, t.deadline)
	return ctx, cancel, nil
}

// release releases the slot.
func (t *downloadSlot) release() {
	if t.leave != nil {
		t.leave()
	}
}
