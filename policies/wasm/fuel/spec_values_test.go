package fuel_test

import (
	"fmt"
	"strconv"
)

// value is an argument or a result in a script: a number in decimals that
// stands for bits, a word, or a list of them for a vector.
type value struct {
	Type     string `json:"type"`
	LaneType string `json:"lane_type"`
	Value    any    `json:"value"`
}

// String returns the value as a message shows it.
func (v value) String() string { return fmt.Sprintf("%s%s %v", v.Type, v.LaneType, v.Value) }

// lanes returns the parts of the value and how many bits each has.
func (v value) lanes() ([]string, uint) {
	if list, ok := v.Value.([]any); ok {
		var lanes []string
		for _, lane := range list {
			lanes = append(lanes, lane.(string))
		}
		return lanes, uint(128 / len(list))
	}
	word, _ := v.Value.(string)
	if v.Type == "i32" || v.Type == "f32" {
		return []string{word}, 32
	}
	return []string{word}, 64
}

// encode returns the value as the engine's interface takes it.
func (v value) encode() []uint64 {
	lanes, bits := v.lanes()
	encoded := make([]uint64, (uint(len(lanes))*bits+63)/64)
	for i, lane := range lanes {
		at := uint(i) * bits
		encoded[at/64] |= v.lane(lane, bits) << (at % 64)
	}
	return encoded
}

func (v value) lane(word string, bits uint) uint64 {
	switch word {
	case "null", "":
		return 0
	case "nan:canonical", "nan:arithmetic":
		return quiet(bits)
	}
	n, err := strconv.ParseUint(word, 10, int(bits))
	if err != nil {
		panic(fmt.Sprintf("a script has the number %q: %v", word, err))
	}
	if v.Type == "externref" {
		return n + 1 // 0 is null to the engine
	}
	return n
}

// quiet is the canonical NaN of so many bits.
func quiet(bits uint) uint64 {
	if bits == 32 {
		return 0x7fc00000
	}
	return 0x7ff8000000000000
}

// matches compares lane by lane, since a NaN has many encodings.
func (v value) matches(got []uint64) bool {
	lanes, bits := v.lanes()
	mask := uint64(1)<<bits - 1
	if bits == 64 {
		mask = ^uint64(0)
	}
	for i, want := range lanes {
		at := uint(i) * bits
		lane := got[at/64] >> (at % 64) & mask
		switch want {
		case "nan:canonical":
			sign := uint64(1) << (bits - 1)
			if lane&^sign != quiet(bits) {
				return false
			}
		case "nan:arithmetic":
			if lane&quiet(bits) != quiet(bits) {
				return false
			}
		default:
			if lane != v.lane(want, bits) {
				return false
			}
		}
	}
	return true
}
