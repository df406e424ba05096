// Package gleanertest asks a handler as Gleaner does, in a plain go test: the
// request goes to it as JSON, and its verdict comes back as JSON through the
// same strict parser. What it does not have is the sandbox, with its limits.
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

// Answer is what came of a call.
type Answer struct {
	Verdict gleaner.Verdict
	Log     []Line
}

// Line is a line of the module's log.
type Line struct {
	Level   hostabi.LogLevel
	Message string
}

// calls lets one call go on at a time, since a module's log belongs to its call.
var calls sync.Mutex

// Call puts a request to a handler. It does so twice, since the same request has
// to get the same verdict: the error tells of a verdict that changes, as of one
// that Gleaner would refuse, of an error or of a panic. Tests may call it
// concurrently.
func Call(handler gleaner.Handler, request gleaner.Request) (Answer, error) {
	calls.Lock()
	defer calls.Unlock()
	data, err := hostabi.MarshalRequest(request)
	if err != nil {
		return Answer{}, err
	}
	first, second := &host{request: data}, &host{request: data}
	for _, h := range []*host{first, second} {
		if err := h.run(handler); err != nil {
			return Answer{Log: h.log}, err
		}
	}
	if !bytes.Equal(first.verdict, second.verdict) {
		return Answer{Log: first.log}, fmt.Errorf(
			"the same request gets two verdicts, %s and %s: a verdict may come of nothing but the request", first.verdict, second.verdict)
	}
	verdict, err := hostabi.ParseVerdict(request.Hook, first.verdict)
	return Answer{Verdict: verdict, Log: first.log}, err
}

// host stands for the sandbox's.
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
func (h *host) ReadRequest(into []byte) int {
	if len(h.request) <= len(into) {
		copy(into, h.request)
	}
	return len(h.request)
}

// WriteVerdict implements guest.Host.
func (h *host) WriteVerdict(data []byte) { h.verdict = bytes.Clone(data) }

// Log implements guest.Host.
func (h *host) Log(level hostabi.LogLevel, message string) {
	h.log = append(h.log, Line{level, message})
}

// Request is a request to start from: about a ConfigMap whose only owner is
// gone, or which is being deleted, as the hook has it.
func Request(hook gleaner.Hook) gleaner.Request {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	r := gleaner.Request{
		APIVersion: hostabi.Version, Hook: hook, Policy: gleaner.Policy{Name: "policy"}, Time: noon,
		Attempt: 1, Round: 1, IdempotencyKey: "key",
	}
	if hook == gleaner.Validate {
		return r
	}
	r.Requested = gleaner.RequestedUnspecified
	r.Object = gleaner.Object{APIVersion: "v1", Kind: "ConfigMap", Metadata: gleaner.Metadata{
		Name: "object", Namespace: "shop", UID: "uid", ResourceVersion: "7",
	}}
	if hook != gleaner.Collect {
		r.Object.Metadata.DeletionTimestamp = &noon
		return r
	}
	r.OwnerlessSince = &noon
	r.Owners = []gleaner.Owner{{
		Reference: gleaner.Reference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner-uid"},
		Standing:  gleaner.StandingAbsent,
	}}
	return r
}
