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

// call is what a module has to do with while it answers one request, or while it
// is being initialised. Nothing of it outlives that.
type call struct {
	request  []byte // nil while the module is being initialised
	verdict  []byte
	answered bool
	now      uint64 // nanoseconds since 1970
	random   *sha3.SHAKE
	log      journal
}

// firstMoment is the time while a module is being initialised: a second after
// 1970 began, since Go's runtime takes zero for a clock that is broken.
const firstMoment = uint64(time.Second)

// newCall takes time and randomness from the request. While a module is being
// initialised, they are the same for every module.
func newCall(request []byte, at time.Time, logBytes int) *call {
	c := &call{request: request, now: firstMoment, random: sha3.NewSHAKE256(), log: journal{room: logBytes}}
	if at.Unix() > 0 {
		c.now = uint64(at.UnixNano())
	}
	_, _ = c.random.Write([]byte("gleaner_v1 randomness\n"))
	_, _ = c.random.Write(request)
	return c
}

// sleep lets time pass, as far as the module can see.
func (c *call) sleep(until uint64) { c.now = max(c.now, until) }

type callKey struct{}

// misuse is a module that calls the host as it must not, or not at all.
type misuse struct {
	kind    policies.FaultKind
	message string
}

func (m *misuse) Error() string { return m.message }

// Fuel for calls of the host.
const (
	hostCall  = 500 // units; a call takes that long
	perByte   = 1
	perRandom = 8
)

var errNoCall = errors.New("a host function was called outside of a call")

// guest is what a host function works on.
type guest struct {
	*sandbox.Instance
	*call
}

// hostFunction is a function that modules may import.
type hostFunction func(g guest, stack []uint64) error

// called charges for the call and finds what it belongs to.
func (f hostFunction) called(ctx context.Context, in *sandbox.Instance, stack []uint64) error {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return errNoCall
	}
	if err := in.Charge(hostCall); err != nil {
		return err
	}
	return f(guest{in, c}, stack)
}

// text takes bytes from the guest's memory, and its fuel for that.
func (g guest) text(at, length uint32) (data []byte, inside bool, err error) {
	if err := g.Charge(perByte * int64(length)); err != nil {
		return nil, false, err
	}
	data, inside = g.Read(at, length)
	return data, inside, nil
}

// outside is a pointer that leads out of the guest's memory.
func (g guest) outside(function string, at, length uint32) error {
	return &misuse{policies.FaultMisuse, fmt.Sprintf(
		"it called %s with %d bytes at %#x, outside of its memory of %d bytes", function, length, at, g.MemorySize())}
}

// later adds a duration to a time, and ends at the last moment there is.
func later(now, by uint64) uint64 {
	if by > math.MaxInt64-min(now, math.MaxInt64) {
		return math.MaxInt64
	}
	return now + by
}
