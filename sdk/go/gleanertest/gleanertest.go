// Package gleanertest calls a handler as Gleaner does, in a plain go test: the
// request is passed as JSON, and the verdict is parsed by the same strict parser.
// It does not include the sandbox with its limits.
package gleanertest

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	gleaner "github.com/gleaner-dev/gleaner/sdk/go"
	"github.com/gleaner-dev/gleaner/sdk/go/internal/guest"
)

// CallResult is the result of a call.
type CallResult struct {
	Verdict gleaner.Verdict
	Log     []Line
}

// Line is a line of the module's log.
type Line struct {
	Level   hostabi.LogLevel
	Message string
}

// calls serializes calls, since a module's log belongs to one call.
var calls sync.Mutex

// Call evaluates a handler on a request. It does so twice, since the same request
// must have the same verdict: the error reports a verdict that changes or is
// invalid, an error or a panic. Tests may call it concurrently.
func Call(handler gleaner.Handler, request gleaner.Request) (CallResult, error) {
	calls.Lock()
	defer calls.Unlock()
	data, err := hostabi.MarshalRequest(request)
	if err != nil {
		return CallResult{}, err
	}
	first, second := &host{request: data}, &host{request: data}
	for _, h := range []*host{first, second} {
		if err := h.run(handler); err != nil {
			return CallResult{Log: h.log}, err
		}
	}
	if !bytes.Equal(first.verdict, second.verdict) {
		return CallResult{Log: first.log}, fmt.Errorf(
			"the same request has two verdicts, %s and %s: a verdict must depend on the request only", first.verdict, second.verdict)
	}
	verdict, err := hostabi.ParseVerdict(request.Hook, first.verdict)
	return CallResult{Verdict: verdict, Log: first.log}, err
}

// host replaces the host of the sandbox.
type host struct {
	request []byte
	verdict []byte
	log     []Line
}

// run calls a handler as an exported hook does. A panic ends the call.
func (h *host) run(handler gleaner.Handler) (err error) {
	before := guest.Current
	guest.Current = h
	defer func() {
		guest.Current = before
		if p := recover(); p != nil {
			err = fmt.Errorf("the handler panicked: %v", p)
		}
	}()
	return guest.Serve(h, handler)
}

// ReadRequest implements guest.Host.
func (h *host) ReadRequest() []byte { return h.request }

// WriteVerdict implements guest.Host.
func (h *host) WriteVerdict(data []byte) { h.verdict = bytes.Clone(data) }

// Log implements guest.Host.
func (h *host) Log(level hostabi.LogLevel, message string) {
	h.log = append(h.log, Line{level, message})
}

// Request returns a default request: about a ConfigMap whose only owner is absent,
// or which is being deleted, depending on the hook.
func Request(hook gleaner.Hook) gleaner.Request {
	testTime := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	r := gleaner.Request{
		APIVersion: hostabi.Version, Hook: hook, Policy: gleaner.Policy{Name: "policy"}, Time: testTime,
		Attempt: 1, Round: 1, IdempotencyKey: "key",
	}
	if hook == gleaner.Validate {
		return r
	}
	r.RequestedPropagation = gleaner.RequestedUnspecified
	r.Object = gleaner.Object{APIVersion: "v1", Kind: "ConfigMap", Metadata: gleaner.Metadata{
		Name: "object", Namespace: "shop", UID: "uid", ResourceVersion: "7",
	}}
	if hook != gleaner.Collect {
		r.Object.Metadata.DeletionTimestamp = &testTime
		return r
	}
	r.OwnersAbsentSince = &testTime
	r.Owners = []gleaner.Owner{{
		Reference: gleaner.Reference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner-uid"},
		Status:    gleaner.OwnerAbsent,
	}}
	return r
}
