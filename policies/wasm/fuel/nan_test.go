package fuel_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// odd32 and odd64 are floats of which NaNs come, and NaNs of all sorts.
var odd32 = []uint32{
	0, 0x80000000, 0x7f800000, 0xff800000, 0x3f800000, 0xbf800000,
	0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7fffffff, 0xffc12345, 0x7fa00000,
}

func odd64() []uint64 {
	return []uint64{
		0, 1 << 63, math.Float64bits(1), math.Float64bits(-1),
		0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000, 0xfff8000000000000,
		0x7ff0000000000001, 0xfff0000000000001, 0x7fffffffffffffff, 0xfff8123456789abc,
	}
}

const (
	canonical32 = 0x7fc00000
	canonical64 = 0x7ff8000000000000
)

func badNaN32(bits uint32) bool {
	f := math.Float32frombits(bits)
	return f != f && bits != canonical32
}

func badNaN64(bits uint64) bool { return math.IsNaN(math.Float64frombits(bits)) && bits != canonical64 }

// computation is an instruction that computes with floats.
type computation struct {
	op       []byte
	operands int
	from, to byte // types of values; 0x7b stands for a vector
	lane     int  // bits of each of its lanes
}

func computations() []computation {
	const f32, f64, v128 = 0x7d, 0x7c, 0x7b
	var all []computation
	add := func(operands int, from, to byte, lane int, ops ...int) {
		for _, op := range ops {
			code := []byte{byte(op)}
			if from == v128 {
				code = join([]byte{0xfd}, number(uint32(op)))
			}
			all = append(all, computation{code, operands, from, to, lane})
		}
	}
	add(1, f32, f32, 32, 0x8d, 0x8e, 0x8f, 0x90, 0x91)
	add(2, f32, f32, 32, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97)
	add(1, f64, f64, 64, 0x9b, 0x9c, 0x9d, 0x9e, 0x9f)
	add(2, f64, f64, 64, 0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5)
	add(1, f64, f32, 32, 0xb6)
	add(1, f32, f64, 64, 0xbb)
	add(1, v128, v128, 32, 0x5e, 0x67, 0x68, 0x69, 0x6a, 0xe3)
	add(2, v128, v128, 32, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9)
	add(1, v128, v128, 64, 0x5f, 0x74, 0x75, 0x7a, 0x94, 0xef)
	add(2, v128, v128, 64, 0xf0, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5)
	return all
}

func (c computation) load() []byte {
	switch c.from {
	case 0x7d:
		return []byte{0x2a, 2, 0}
	case 0x7c:
		return []byte{0x2b, 3, 0}
	default:
		return []byte{0xfd, 0, 4, 0}
	}
}

func (c computation) store() []byte {
	switch c.to {
	case 0x7d:
		return []byte{0x38, 2, 0}
	case 0x7c:
		return []byte{0x39, 3, 0}
	default:
		return []byte{0xfd, 11, 4, 0}
	}
}

// program stores at 0 what the instruction makes of what is at 16 and 32.
func (c computation) program() assembly {
	code := join([]byte{0x41, 0, 0x41, 16}, c.load())
	if c.operands == 2 {
		code = join(code, []byte{0x41, 32}, c.load())
	}
	a := with(join(code, c.op, c.store())...)
	a.exports = append(a.exports, join(text("memory"), []byte{2, 0}))
	return a
}

// inputs are 16 bytes for each odd value.
func (c computation) inputs() [][]byte {
	var all [][]byte
	lane := c.lane
	if c.op[0] == 0xbb || len(c.op) > 1 && c.op[1] == 0x5f { // promote
		lane = 32
	} else if c.op[0] == 0xb6 || len(c.op) > 1 && c.op[1] == 0x5e { // demote
		lane = 64
	}
	if lane == 32 {
		for _, v := range odd32 {
			all = append(all, slices.Repeat(binary.LittleEndian.AppendUint32(nil, v), 4))
		}
		return all
	}
	for _, v := range odd64() {
		all = append(all, slices.Repeat(binary.LittleEndian.AppendUint64(nil, v), 2))
	}
	return all
}

// TestNaNsHaveTheSameBitsOnEveryMachine holds for each instruction whose NaN
// depends on the machine.
func TestNaNsHaveTheSameBitsOnEveryMachine(t *testing.T) {
	r := newRuntime(t)
	seen := 0
	for _, c := range computations() {
		t.Run(fmt.Sprintf("%x", c.op), func(t *testing.T) {
			g := instantiate(t, r, c.program().bytes(), fuel.Options{})
			for _, a := range c.inputs() {
				for _, b := range c.inputs() {
					g.Memory().Write(16, a)
					g.Memory().Write(32, b)
					if _, _, err := g.spend(t, ampleFuel, "run"); err != nil {
						t.Fatal(err)
					}
					size := map[byte]uint32{0x7d: 4, 0x7c: 8, 0x7b: 16}[c.to]
					got, _ := g.Memory().Read(0, size)
					if invalidModule(got, c.lane) {
						t.Fatalf("of %x and %x it makes %x", a, b, got)
					}
					seen++
				}
			}
		})
	}
	if seen < 1000 {
		t.Errorf("%d results were seen", seen)
	}
}

// invalidModule tells whether one of the lanes is a NaN and not the canonical one.
func invalidModule(lanes []byte, bits int) bool {
	for len(lanes) > 0 {
		if bits == 32 && badNaN32(binary.LittleEndian.Uint32(lanes)) || bits == 64 && badNaN64(binary.LittleEndian.Uint64(lanes)) {
			return true
		}
		lanes = lanes[bits/8:]
	}
	return false
}

// TestNaNsAreCanonicalHoweverTheyAreSeen holds for chains of which only the end is
// looked after, and for each way to see bits.
func TestNaNsAreCanonicalHoweverTheyAreSeen(t *testing.T) {
	zero64, zero32 := make([]byte, 8), make([]byte, 4)
	nan64 := join([]byte{0x44}, zero64, []byte{0x44}, zero64, []byte{0xa3}) // 0/0
	nan32 := join([]byte{0x43}, zero32, []byte{0x43}, zero32, []byte{0x95})
	one64 := join([]byte{0x44}, binary.LittleEndian.AppendUint64(nil, math.Float64bits(1)))
	for claim, c := range map[string]struct {
		code []byte
		want uint64
	}{
		"reinterpreted":             {join(nan64, []byte{0xbd}), canonical64},
		"reinterpreted, 32 bits":    {join(nan32, []byte{0xbc, 0xad}), canonical32},
		"negated":                   {join(nan64, []byte{0x9a, 0xbd}), canonical64 | 1<<63},
		"its sign copied":           {join(one64, nan64, []byte{0xa6, 0xbd}), math.Float64bits(1)},
		"through a local":           {join(nan64, []byte{0x21, 0, 0x20, 0, 0xbd}), canonical64},
		"through a global":          {join(nan64, []byte{0x24, 1, 0x23, 1, 0xbd}), canonical64},
		"at the end of a block":     {join([]byte{0x02, 0x7c}, nan64, []byte{0x0b, 0xbd}), canonical64},
		"chosen":                    {join(nan64, one64, []byte{0x41, 1, 0x1b, 0xbd}), canonical64},
		"computed with":             {join(nan64, one64, []byte{0xa0, 0xbd}), canonical64},
		"demoted":                   {join(nan64, []byte{0xb6, 0xbc, 0xad}), canonical32},
		"promoted":                  {join(nan32, []byte{0xbb, 0xbd}), canonical64},
		"demoted and promoted":      {join(nan64, []byte{0xb6, 0xbb, 0xbd}), canonical64},
		"truncated":                 {join(nan64, []byte{0xfc, 6}), 0},
		"of constants, is as it is": {join([]byte{0x44, 1, 0, 0, 0, 0, 0, 0xf0, 0xff, 0xbd}), 0xfff0000000000001},
	} {
		t.Run(claim, func(t *testing.T) {
			a := assembly{types: [][]byte{{0x60, 0, 1, 0x7e}}, globals: [][]byte{{0x7e, 1, 0x42, 0, 0x0b}, join([]byte{0x7c, 1, 0x44}, zero64, []byte{0x0b})}}
			a.function("run", 0, []byte{1, 1, 0x7c}, c.code...)
			g := instantiate(t, newRuntime(t), a.bytes(), fuel.Options{})
			got, _, err := g.spend(t, ampleFuel, "run")
			if err != nil || got[0] != c.want {
				t.Errorf("got %#x, %v, want %#x", got, err, c.want)
			}
		})
	}
}

// TestLocalsForNaNsComeAfterTheOthers holds for functions with parameters and
// locals, which are not disturbed.
func TestLocalsForNaNsComeAfterTheOthers(t *testing.T) {
	a := assembly{types: [][]byte{{0x60, 2, 0x7e, 0x7c, 1, 0x7e}}}
	// sqrt of the parameter into a local, sum of both as bits, plus the first parameter and a local.
	code := join([]byte{0x20, 1, 0x9f, 0x22, 2, 0x20, 1, 0xa0, 0xbd}, []byte{0x20, 0, 0x7c, 0x20, 3, 0x7c}, []byte{0x20, 1, 0xb6, 0x91, 0xbc, 0xad, 0x7c})
	a.function("run", 0, []byte{2, 1, 0x7c, 1, 0x7e}, code...)
	g := instantiate(t, newRuntime(t), a.bytes(), fuel.Options{})
	got, _, err := g.spend(t, ampleFuel, "run", 5, math.Float64bits(4))
	if want := math.Float64bits(6) + 5 + uint64(math.Float32bits(2)); err != nil || got[0] != want {
		t.Errorf("got %#x, %v, want %#x", got, err, want)
	}
}
