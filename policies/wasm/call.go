package wasm

import (
	"context"
	"crypto/sha3"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// call is the state of one evaluation of a module, or of its initialization.
type call struct {
	request        []byte // nil during initialization
	verdict        []byte
	verdictWritten bool
	now            uint64 // nanoseconds since 1970
	random         *sha3.SHAKE
	log            logBuffer
}

// initTime is the time during initialization: one second after the start of
// 1970, since Go's runtime treats zero as a broken clock.
const initTime = uint64(time.Second)

// newCall derives time and randomness from the request. During initialization, they
// are the same for every module.
func newCall(request []byte, at time.Time, logBytes int) *call {
	c := &call{request: request, now: initTime, random: sha3.NewSHAKE256(), log: logBuffer{remaining: logBytes}}
	if at.Unix() > 0 {
		c.now = uint64(at.UnixNano())
	}
	_, _ = c.random.Write([]byte("gleaner_v1 randomness\n"))
	_, _ = c.random.Write(request)
	return c
}

// sleep advances the time that the module observes.
func (c *call) sleep(until uint64) { c.now = max(c.now, until) }

type callKey struct{}

// guestError is an invalid call of the host by a module, or a missing one.
type guestError struct {
	kind    policies.FaultKind
	message string
}

func (m *guestError) Error() string { return m.message }

// Fuel of host calls.
const (
	hostCall  = 500 // units, in proportion to the duration of a call
	perByte   = 1
	perRandom = 8
)

var errNoCall = errors.New("a host function was called outside of a call")

// guest is the context of a host function.
type guest struct {
	*sandbox.Instance
	*call
}

// hostFunction is a function that modules may import.
type hostFunction func(g guest, stack []uint64) error

// bind charges for the call and finds its state.
func (f hostFunction) bind(ctx context.Context, in *sandbox.Instance, stack []uint64) error {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return errNoCall
	}
	if err := in.Charge(hostCall); err != nil {
		return err
	}
	return f(guest{in, c}, stack)
}

// readText returns bytes of the guest's memory, and charges for them.
func (g guest) readText(at, length uint32) (data []byte, inside bool, err error) {
	if err := g.Charge(perByte * int64(length)); err != nil {
		return nil, false, err
	}
	data, inside = g.Read(at, length)
	return data, inside, nil
}

// errOutOfBounds is the error for a pointer outside of the guest's memory.
func (g guest) errOutOfBounds(function string, at, length uint32) error {
	return &guestError{policies.FaultInvalidCall, fmt.Sprintf(
		"it called %s with %d bytes at %#x, outside of its memory of %d bytes", function, length, at, g.MemorySize())}
}

// addSaturated adds a duration to a time, and saturates.
func addSaturated(now, by uint64) uint64 {
	if by > math.MaxInt64-min(now, math.MaxInt64) {
		return math.MaxInt64
	}
	return now + by
}
