package rego

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

func TestHostilePoliciesAreStopped(t *testing.T) {
	h := newEngine(t)
	neighbour := newPolicy(t, h, sandbox.Limits{}, keep)
	for claim, c := range map[string]struct {
		rules  string
		input  string
		limits sandbox.Limits
		want   policies.FaultKind
	}{
		"one that iterates for a very long time": {
			rules: `collect := 1 if {
	r := numbers.range(1, 1000)
	some a in r
	some b in r
	some c in r
	some d in r
	a + b + c + d < 0
}`,
			want: policies.FaultFuelExhausted,
		},
		"one that takes exponential time": {
			rules: exponential(40),
			want:  policies.FaultFuelExhausted,
		},
		"one that doubles a text": {
			rules:  doubling(`concat("", [x, x])`, `"aaaaaaaa"`),
			limits: sandbox.Limits{Memory: 4 << 20},
			want:   policies.FaultMemoryLimit,
		},
		"one that doubles a list": {
			rules:  doubling(`array.concat(x, x)`, `[1, 2, 3, 4]`),
			limits: sandbox.Limits{Memory: 4 << 20},
			want:   policies.FaultMemoryLimit,
		},
		"one that doubles by replacing": {
			rules: doubling(`replace(x, "a", "aa")`, `"aaaaaaaa"`),
			want:  policies.FaultFuelExhausted, // each replacement copies the whole text
		},
		"one that doubles by sprintf": {
			rules: doubling(`sprintf("%s%s", [x, x])`, `"aaaaaaaa"`),
			want:  policies.FaultInvalidCall, // its arguments have too many bytes
		},
		"one that counts to a billion": {
			rules: `collect := count(numbers.range(1, 1000000000))`,
			want:  policies.FaultFuelExhausted,
		},
		"one that shifts a bit far": {
			rules: `collect := bits.lsh(1, 100000000000)`,
			want:  policies.FaultTrapped,
		},
		"one that repeats what the host does": {
			rules: `collect := count([x | some i in numbers.range(1, 1000000); x := sprintf("%d", [i])])`,
			want:  policies.FaultFuelExhausted,
		},
		"one whose pattern is slow": {
			rules: `collect := count([1 | some i in numbers.range(1, 100000); regex.find_n("(x+x+)+y", input, -1)])`,
			input: `"` + strings.Repeat("x", 1000) + `"`,
			want:  policies.FaultFuelExhausted,
		},
		"a document that is nested deeply": {
			rules:  `collect := count(input)`,
			input:  strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000),
			limits: sandbox.Limits{Fuel: sandbox.MaxFuel},
			want:   policies.FaultTrapped, // its stack is used up
		},
		"a built-in that is given a document that is nested deeply": {
			rules: `collect := sprintf("%v", [input])`,
			input: strings.Repeat("[", 1_000) + strings.Repeat("]", 1_000),
			want:  policies.FaultInvalidCall,
		},
	} {
		t.Run(claim, func(t *testing.T) {
			p := newPolicy(t, h, c.limits, File{"a.rego", "package gleaner\n" + c.rules})
			input := c.input
			if input == "" {
				input = "{}"
			}
			before := heapInUse()

			answer, err := value(t.Context(), p, "collect", input)

			if kind(p, err) != c.want {
				t.Errorf("got %.200s, %v, want %q", answer, err, c.want)
			}
			if grown := int64(heapInUse()) - int64(before); grown > 200<<20 {
				t.Errorf("the host uses %d MiB more", grown>>20)
			}
			if _, err := neighbour.Evaluate(t.Context(), request("collect", nil)); err != nil {
				t.Errorf("its neighbour: %v", err)
			}
		})
	}
}

// exponential has functions that call the next one twice, with an argument each
// that nobody has had before.
func exponential(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "collect := f0(1)\nf%d(x) := x\n", n)
	for i := range n {
		fmt.Fprintf(&b, "f%d(x) := f%d(x * 2) + f%d((x * 2) + 1)\n", i, i+1, i+1)
	}
	return b.String()
}

// doubling has forty rules that double what the one before has.
func doubling(expression, first string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "collect := count(r40)\nr0 := %s\n", first)
	for i := range 40 {
		fmt.Fprintf(&b, "r%d := %s if x := r%d\n", i+1, expression, i)
	}
	return b.String()
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}
