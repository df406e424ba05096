package wasm

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/tetratelabs/wazero/api"
)

// subscription is one thing that poll_oneoff waits for.
type subscription struct {
	userdata uint64
	kind     byte
	file     uint64
	at       uint64 // of a clock: when it is due
	number   uint16 // error number
}

const (
	kindClock = 0
	kindRead  = 1
	kindWrite = 2

	subscriptionSize = 48
	eventSize        = 32
)

// poll (subscriptions ptr, events ptr, subscriptions, events count ptr) returns
// at once. If all that it waits for are clocks, as much time has passed as the
// first of them takes.
func poll(g guest, stack []uint64) error {
	from, to, count := api.DecodeU32(stack[0]), api.DecodeU32(stack[1]), api.DecodeU32(stack[2])
	if count == 0 {
		return give(stack, invalid)
	}
	if err := g.Charge(int64(count) * (subscriptionSize + eventSize) * perByte); err != nil {
		return err
	}
	data, inside := g.Read(from, subscriptionSize*min(count, math.MaxUint32/subscriptionSize))
	if !inside {
		return give(stack, fault)
	}
	var all []subscription
	first := uint64(math.MaxUint64)
	for entry := range slices.Chunk(data, subscriptionSize) {
		s := readSubscription(entry, g.now)
		all = append(all, s)
		first = min(first, s.at)
	}
	g.sleep(first)
	var events []byte
	for _, s := range all {
		if s.at <= g.now {
			events = s.appendEvent(events)
		}
	}
	if !g.Write(to, events) {
		return give(stack, fault)
	}
	return g.giveU32(stack, stack[3], uint64(len(events)/eventSize))
}

// readSubscription finds out when it is due. What does not wait for a clock is
// due before any other.
func readSubscription(b []byte, now uint64) subscription {
	s := subscription{userdata: binary.LittleEndian.Uint64(b), kind: b[8]}
	switch s.kind {
	case kindClock:
		const absolute = 1
		timeout := binary.LittleEndian.Uint64(b[24:])
		switch {
		case binary.LittleEndian.Uint32(b[16:]) > lastClock:
			s.number = invalid
		case binary.LittleEndian.Uint16(b[40:])&absolute != 0:
			s.at = min(timeout, math.MaxInt64)
		default:
			s.at = later(now, timeout)
		}
	case kindRead, kindWrite:
		if s.file = uint64(binary.LittleEndian.Uint32(b[16:])); !isOpen(s.file) {
			s.number = badFile
		}
	default:
		s.number = invalid
	}
	return s
}

func (s subscription) appendEvent(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, s.userdata)
	b = binary.LittleEndian.AppendUint16(b, s.number)
	b = append(b, s.kind, 0, 0, 0, 0, 0)
	return append(b, make([]byte, eventSize-16)...) // nothing to read, room for nothing
}
