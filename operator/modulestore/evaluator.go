package modulestore

import (
	"context"
	"errors"
	"sync"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

// An Evaluator is a policies.Evaluator that stays the same while a policy uses the same content
// with the same limits.
type Evaluator = policies.MeteredEvaluator

// errRetired is returned by evaluators of a snapshot that was replaced some time ago. It is
// a host error: the object is evaluated again with the current snapshot.
var errRetired = errors.New("module instance is no longer in use")

// A handle is the Evaluator of an instance. After close, calls return errRetired.
type handle struct {
	name     string
	instance Instance

	mu      sync.Mutex // protects the fields below
	calls   int
	closed  bool
	drained chan struct{} // closed when the handle is closed and no call is in flight
}

func newHandle(name string, i Instance) *handle {
	return &handle{name: name, instance: i, drained: make(chan struct{})}
}

// Name implements policies.Evaluator.
func (h *handle) Name() string { return h.name }

// Evaluate implements policies.Evaluator.
func (h *handle) Evaluate(ctx context.Context, r hostabi.Request) (hostabi.Verdict, error) {
	evaluation, err := h.EvaluateMetered(ctx, r)
	return evaluation.Verdict, err
}

// EvaluateMetered implements policies.Evaluator.
func (h *handle) EvaluateMetered(ctx context.Context, r hostabi.Request) (policies.Evaluation, error) {
	if !h.beginCall() {
		return policies.Evaluation{}, errRetired
	}
	defer h.endCall()
	return h.instance.EvaluateMetered(ctx, r)
}

func (h *handle) beginCall() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.calls++
	return true
}

func (h *handle) endCall() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls--; h.calls == 0 && h.closed {
		close(h.drained)
	}
}

// close waits for calls in flight, and frees the instance. It must be called once.
func (h *handle) close() {
	h.mu.Lock()
	h.closed = true
	if h.calls == 0 {
		close(h.drained)
	}
	h.mu.Unlock()
	<-h.drained
	h.instance.Close()
}
