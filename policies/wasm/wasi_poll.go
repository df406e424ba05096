package wasm

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/tetratelabs/wazero/api"
)

// subscription is an event that poll_oneoff waits for.
type subscription struct {
	userdata uint64
	kind     byte
	file     uint64
	due      uint64 // of a clock: its time
	errno    uint16 // error number
}

const (
	kindClock = 0
	kindRead  = 1
	kindWrite = 2

	subscriptionSize = 48
	eventSize        = 32
)

// poll (subscriptions ptr, events ptr, subscriptions, events count ptr) returns
// immediately. If it waits for clocks only, the time advances to the first of them.
func poll(g guest, stack []uint64) error {
	from, to, count := api.DecodeU32(stack[0]), api.DecodeU32(stack[1]), api.DecodeU32(stack[2])
	if count == 0 {
		return returnErrno(stack, errnoInvalid)
	}
	if err := g.Charge(int64(count) * (subscriptionSize + eventSize) * perByte); err != nil {
		return err
	}
	data, inside := g.Read(from, subscriptionSize*min(count, math.MaxUint32/subscriptionSize))
	if !inside {
		return returnErrno(stack, fault)
	}
	var all []subscription
	first := uint64(math.MaxUint64)
	for entry := range slices.Chunk(data, subscriptionSize) {
		s := readSubscription(entry, g.now)
		all = append(all, s)
		first = min(first, s.due)
	}
	g.sleep(first)
	var events []byte
	for _, s := range all {
		if s.due <= g.now {
			events = s.appendEvent(events)
		}
	}
	if !g.Write(to, events) {
		return returnErrno(stack, fault)
	}
	return g.writeU32(stack, stack[3], uint64(len(events)/eventSize))
}

// readSubscription decodes a subscription. One that is not for a clock is due
// first.
func readSubscription(b []byte, now uint64) subscription {
	s := subscription{userdata: binary.LittleEndian.Uint64(b), kind: b[8]}
	switch s.kind {
	case kindClock:
		const absolute = 1
		timeout := binary.LittleEndian.Uint64(b[24:])
		switch {
		case binary.LittleEndian.Uint32(b[16:]) > lastClock:
			s.errno = errnoInvalid
		case binary.LittleEndian.Uint16(b[40:])&absolute != 0:
			s.due = min(timeout, math.MaxInt64)
		default:
			s.due = addSaturated(now, timeout)
		}
	case kindRead, kindWrite:
		if s.file = uint64(binary.LittleEndian.Uint32(b[16:])); !isOpen(s.file) {
			s.errno = errnoBadFile
		}
	default:
		s.errno = errnoInvalid
	}
	return s
}

func (s subscription) appendEvent(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, s.userdata)
	b = binary.LittleEndian.AppendUint16(b, s.errno)
	b = append(b, s.kind, 0, 0, 0, 0, 0)
	return append(b, make([]byte, eventSize-16)...) // 0 bytes to read or write
}
