package fuel_test

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// huge is the number 2³²-1, encoded.
var huge = []byte{0xff, 0xff, 0xff, 0xff, 0x0f}

// TestHostileModulesAreRefused holds for modules that lie about themselves:
// each is refused in words, and without taking memory for what it claims.
func TestHostileModulesAreRefused(t *testing.T) {
	header := []byte("\x00asm\x01\x00\x00\x00")
	types := section(1, list(typeVoid))
	functions := section(3, []byte{1, 0})
	body := func(code ...byte) []byte {
		return join(header, types, functions, section(10, join([]byte{1}, sized(code))))
	}
	for name, c := range map[string]struct {
		code []byte
		want string // a part of the message
	}{
		"nothing":                      {nil, "not a WebAssembly module"},
		"text":                         {[]byte("(module (func))"), "not a WebAssembly module"},
		"compressed":                   {[]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00"), "not a WebAssembly module"},
		"a component":                  {[]byte("\x00asm\x0d\x00\x01\x00"), "a core module is needed"},
		"another version":              {[]byte("\x00asm\x02\x00\x00\x00"), "unknown version"},
		"a section without a size":     {join(header, []byte{1}), "cut short or damaged: it ends too early at offset 0x9"},
		"a section beyond the end":     {join(header, []byte{1}, huge), "cut short"},
		"a repeated section":           {join(header, types, types), "repeats the one before it"},
		"sections out of order":        {join(header, functions, types), "uses type 0, and has only 0"},
		"tables before functions":      {join(header, section(4, []byte{0}), section(3, []byte{0})), "out of order"},
		"an unknown section":           {join(header, section(99, nil)), "unknown kind 99"},
		"bytes after a section's list": {join(header, section(1, []byte{0, 0})), "left over"},
		"a function without code":      {join(header, types, functions), "declares 1 functions and has code for 0"},
		"code without a function":      {join(header, types, section(10, []byte{1, 2, 0, 0x0b})), "declares 0 functions and has code for 1"},
		"a name that is not UTF-8":     {join(header, section(0, []byte{1, 0xff})), "not UTF-8"},
		"an overlong number":           {join(header, []byte{1, 0x80, 0x80, 0x80, 0x80, 0x80, 0}), "more than 32 bits"},
		"a number with spare bits":     {join(header, []byte{1, 0xff, 0xff, 0xff, 0xff, 0x1f}), "more than 32 bits"},
		"an overlong constant":         {body(0, 0x41, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0x1a, 0x0b), "more than 32 bits"},
		"a constant with spare bits":   {body(0, 0x41, 0xff, 0xff, 0xff, 0xff, 0x3f, 0x1a, 0x0b), "more than 32 bits"},
		"code without an end":          {body(0, 0x01), "cut short"},
		"code after its end":           {body(0, 0x0b, 0x01), "goes on after its end"},
		"an else without an if":        {body(0, 0x05, 0x0b), "else without an if"},
		"a branch to nowhere":          {body(0, 0x0c, 1, 0x0b), "uses label 1, and has only 1"},
		"an unknown instruction":       {body(0, 0x27, 0x0b), "unknown instruction 0x27"},
		"an unknown bulk instruction":  {body(0, 0xfc, 18, 0x0b), "unknown instruction 0xfc 18"},
		"a branch table without end":   {body(join([]byte{0, 0x41, 0, 0x0e}, huge)...), "targets of one branch"},
		"a label cut short":            {body(0, 0x41, 0, 0x0e, 1, 0xfd, 0xfd, 0xfd), "cut short"},
		"locals without end":           {body(join(huge, []byte{0x0b})...), "over the limit"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := refusal(t, c.code, fuel.Options{}); !strings.Contains(got, c.want) || c.want == "" {
				t.Errorf("the message is %q, want %q in it", got, c.want)
			}
		})
	}
}

// TestRewrite_ChecksCounts holds for the count that each list begins with.
func TestRewrite_ChecksCounts(t *testing.T) {
	unlimited := fuel.Limits{Functions: 1 << 40, Entries: 1 << 40, Tables: 1 << 40, Locals: 1 << 40, TableElements: 1 << 40}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, id := range []byte{1, 2, 3, 4, 5, 6, 7, 9, 10, 11} {
		code := join([]byte("\x00asm\x01\x00\x00\x00"), section(id, huge))
		if got := refusal(t, code, fuel.Options{Limits: unlimited}); got == "" {
			t.Errorf("section %d was taken in", id)
		}
	}
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 1<<20 {
		t.Errorf("refusing them took %d bytes", taken)
	}
}

// TestEveryCutIsRefused cuts a module with one of everything at each of its
// bytes. Where a section ends it may be a module, and nothing else may.
func TestEveryCutIsRefused(t *testing.T) {
	whole := varied().bytes()
	for n := range whole {
		got := refusal(t, whole[:n], fuel.Options{})
		if got == "" && !boundary(whole, n) {
			t.Errorf("the first %d bytes were taken in", n)
		}
	}
}

func boundary(module []byte, n int) bool {
	at := 8
	for at < n {
		at += 2 + int(module[at+1]) // no section of the module is longer than 127 bytes
	}
	return at == n
}

// TestLargeFunctionsAreTakenIn holds for what is large and honest.
func TestLargeFunctionsAreTakenIn(t *testing.T) {
	for name, code := range map[string][]byte{
		"a deep nest":          join(repeat(0x02, 0x40, 4_000), bytes.Repeat([]byte{0x0b}, 4_000)),
		"a deep nest of loops": join(repeat(0x03, 0x40, 500), bytes.Repeat([]byte{0x0b}, 500)),
		"a wide branch table":  join([]byte{0x41, 0, 0x0e}, number(9_000), bytes.Repeat([]byte{0}, 9_001)),
		"a long straight row":  bytes.Repeat([]byte{0x41, 0, 0x1a}, 300_000),
		"a long row of ifs":    bytes.Repeat([]byte{0x41, 0, 0x04, 0x40, 0x0b}, 2_000),
	} {
		t.Run(name, func(t *testing.T) {
			g := instantiate(t, newRuntime(t), with(code...).bytes(), fuel.Options{})
			if _, _, err := g.spend(t, ampleFuel, "run"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestExpensiveFunctionsAreRefused holds for what would keep the engine
// compiling for minutes, or take its memory.
func TestExpensiveFunctionsAreRefused(t *testing.T) {
	joins := assembly{types: [][]byte{typeVoid}}
	joins.function("run", 0, join([]byte{1}, number(50_000), []byte{0x7f}), bytes.Repeat([]byte{0x41, 0, 0x04, 0x40, 0x0b}, 5_000)...)
	for want, a := range map[string]assembly{
		"has 300000 blocks and branches":          with(join(repeat(0x02, 0x40, 300_000), bytes.Repeat([]byte{0x0b}, 300_000))...),
		"has 15000 loops":                         with(join(repeat(0x03, 0x40, 15_000), bytes.Repeat([]byte{0x0b}, 15_000))...),
		"it has 900000 targets of one branch":     with(join([]byte{0x41, 0, 0x0e}, number(900_000), bytes.Repeat([]byte{0}, 900_001))...),
		"has 250000000 blocks and branches times": joins,
		"has 1100004 bytes of code":               with(bytes.Repeat([]byte{0x01}, 1_100_000+2)...),
	} {
		if got := refusal(t, a.bytes(), fuel.Options{}); !strings.Contains(got, want) {
			t.Errorf("the message is %q, want %q in it", got, want)
		}
	}
}
