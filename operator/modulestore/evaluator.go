package modulestore

import (
	"context"
	"errors"
	"sync"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

// Evaluator is a policies.Asker that stays the same for as long as a policy uses the
// same content with the same limits.
type Evaluator = policies.Asker

// errRetired is for whoever evaluates by a snapshot that was replaced some time ago. It
// is a host error: the object is looked at again, by the snapshot of today.
var errRetired = errors.New("this instance of the module is no longer in use")

// handle is the Evaluator of an instance. It lets no call begin once it is closed.
type handle struct {
	name     string
	instance Instance

	mu     sync.Mutex // covers what follows
	calls  int
	closed bool
	idle   chan struct{} // closed when it is closed and no call is in flight
}

func newHandle(name string, i Instance) *handle {
	return &handle{name: name, instance: i, idle: make(chan struct{})}
}

// Name implements policies.Evaluator.
func (h *handle) Name() string { return h.name }

// Evaluate implements policies.Evaluator.
func (h *handle) Evaluate(ctx context.Context, r hostabi.Request) (hostabi.Verdict, error) {
	answer, err := h.Ask(ctx, r)
	return answer.Verdict, err
}

// Ask implements policies.Asker.
func (h *handle) Ask(ctx context.Context, r hostabi.Request) (policies.Answer, error) {
	if !h.enter() {
		return policies.Answer{}, errRetired
	}
	defer h.leave()
	return h.instance.Ask(ctx, r)
}

func (h *handle) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.calls++
	return true
}

func (h *handle) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls--; h.calls == 0 && h.closed {
		close(h.idle)
	}
}

// close waits for the calls in flight, and frees the instance. It is called once.
func (h *handle) close() {
	h.mu.Lock()
	h.closed = true
	if h.calls == 0 {
		close(h.idle)
	}
	h.mu.Unlock()
	<-h.idle
	h.instance.Close()
}
