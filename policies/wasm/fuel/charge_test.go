package fuel_test

import (
	"slices"
	"testing"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// TestEachRoundPaysForWhatItMayDo pins the units that a loop of ten rounds
// takes, of which 7 in each round are its own.
func TestEachRoundPaysForWhatItMayDo(t *testing.T) {
	const own = 7 // the parameter, the loop, and the five instructions that count down
	no, yes := []byte{0x41, 0}, []byte{0x41, 1}
	small := []byte{0x41, 0, 0x1a}               // 2 units
	large := slices.Repeat(small, 10)            // 20 units
	cond := []byte{0x04, 0x40}                   // 1 unit, and its condition 1
	otherwise, end := []byte{0x05}, []byte{0x0b} // free
	// Two blocks: the first condition leaves both, the second the inner one.
	blocks := func(outer, inner []byte) []byte {
		return join([]byte{0x02, 0x40, 0x02, 0x40}, outer, []byte{0x0d, 1}, inner, []byte{0x0d, 0}, end, large, end)
	}
	for name, c := range map[string]struct {
		body []byte
		want int64 // in a round
	}{
		"nothing":                         {nil, 0},
		"straight code":                   {large, 20},
		"a small arm that is taken":       {join(yes, cond, small, end), 4},
		"a small arm that is not":         {join(no, cond, small, end), 4},
		"a large arm that is taken":       {join(yes, cond, large, end), 22},
		"a large arm that is not":         {join(no, cond, large, end), 2},
		"two large arms":                  {join(no, cond, large, otherwise, large, end), 22},
		"a small arm and a large one":     {join(yes, cond, small, otherwise, large, end), 4},
		"what follows arms":               {join(no, cond, large, end, large), 22},
		"what may be jumped over and is":  {blocks(yes, no), 4},
		"what may be jumped over, is not": {blocks(no, no), 24},
		"what is jumped to":               {blocks(no, yes), 24},
		"a loop of one round in it":       {join([]byte{0x03, 0x40}, large, end), 21},
		"a call of a small function":      {[]byte{0x10, 1}, 10},
		"a call of a larger one":          {[]byte{0x10, 2}, 30},
		"a branch with its value":         {join([]byte{0x02, 0x7f}, yes, []byte{0x0c, 0}, end, []byte{0x1a}), 4},
	} {
		t.Run(name, func(t *testing.T) {
			a := assembly{types: [][]byte{{0x60, 1, 0x7f, 0}, typeVoid}}
			a.function("run", 0, noLocals, join([]byte{0x03, 0x40}, c.body, []byte{0x20, 0, 0x41, 1, 0x6b, 0x22, 0, 0x0d, 0}, end)...)
			a.function("", 1, noLocals, slices.Repeat(small, 4)...)
			a.function("", 1, noLocals, large...)
			g := instantiate(t, newRuntime(t), a.bytes(), fuel.Options{})

			_, used, err := g.spend(t, 10*(own+c.want), "run", 10)

			if err != nil || used != 10*(own+c.want) {
				t.Errorf("it used %d units, want 10 times %d (error: %v)", used, own+c.want, err)
			}
			if _, _, err := g.spend(t, 10*(own+c.want)-1, "run", 10); err == nil || g.left() >= 0 {
				t.Errorf("with one unit less it ended with %v, and %d were left", err, g.left())
			}
		})
	}
}

func TestWhatFollowsALoopIsPaidOnce(t *testing.T) {
	a := assembly{types: [][]byte{{0x60, 1, 0x7f, 0}}}
	round := []byte{0x03, 0x40, 0x20, 0, 0x41, 1, 0x6b, 0x22, 0, 0x0d, 0, 0x0b}
	a.function("run", 0, noLocals, join(round, slices.Repeat([]byte{0x41, 0, 0x1a}, 10))...)
	g := instantiate(t, newRuntime(t), a.bytes(), fuel.Options{})

	_, used, err := g.spend(t, ampleFuel, "run", 10)

	if err != nil || used != 10*7+20 {
		t.Errorf("it used %d units, want 90 (error: %v)", used, err)
	}
}
