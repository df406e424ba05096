package rego

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/types"

	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// Of each built-in that OPA has, the source says what becomes of it: it runs
// within the module, the host answers it, or it is refused with advice. A new
// version of OPA with a built-in more fails here.
func TestBuiltins_AreComplete(t *testing.T) {
	notUnderRace(t)
	h := newEngine(t)
	for _, b := range language().Builtins {
		if spelt[b.Name] || b.IsDeprecated() {
			continue
		}
		t.Run(b.Name, func(t *testing.T) {
			_, host := allowed[b.Name]
			_, bad := advice(b.Name)
			if host && bad {
				t.Fatal("it is both allowed and refused")
			}
			if bad {
				return // whether it could run within the module doesn't matter
			}
			if got := leftToHost(t, h, b); got != host {
				t.Errorf("left to the host: %v; in the list of those allowed: %v", got, host)
			}
		})
	}
}

// spelt are the built-ins that the compiler puts for what has a syntax of its own.
var spelt = map[string]bool{
	"eq": true, "assign": true, "internal.member_2": true, "internal.member_3": true,
	"internal.print": true, "print": true, "internal.template_string": true,
}

// leftToHost compiles a call of the built-in with arguments of any type.
func leftToHost(t *testing.T, h *Engine, b *ast.Builtin) bool {
	t.Helper()
	args := make([]string, 0, len(b.Decl.FuncArgs().Args))
	for i := range b.Decl.FuncArgs().Args {
		args = append(args, fmt.Sprintf("input.a%d", i))
	}
	call := fmt.Sprintf("%s(%s)", b.Name, strings.Join(args, ", "))
	if b.Infix != "" {
		call = strings.Join(args, " "+b.Infix+" ")
	}
	source := "package gleaner\ncollect := x if x := " + call
	if b.Relation || b.Decl.Result() == nil || types.Compare(b.Decl.Result(), types.NewBoolean()) == 0 {
		source = "package gleaner\ncollect := 1 if " + call
	}
	if b.Relation {
		source = "package gleaner\ncollect := [x | " + strings.TrimSuffix(call, ")") + ", x)]"
	}
	m, err := h.Load(t.Context(), []File{{"a.rego", source}})
	if err != nil {
		t.Fatalf("%v: %s", err, source)
	}
	defer m.Close()
	return len(m.Builtins) > 0
}

func TestBuiltins_BoundCost(t *testing.T) {
	notUnderRace(t)
	h := newEngine(t)
	long := func(n int) string { return strings.Repeat("a", n) }
	for claim, c := range map[string]struct{ call, want, input string }{
		"sprintf with a wide verb":                  {`sprintf("%900000d%900000d", [1, 1])`, "sprintf: the result could exceed 1048576 bytes", "{}"},
		"sprintf with a width among its arguments":  {`sprintf("%*d%*d", [900000, 1, 900000, 1])`, "sprintf: the result could exceed 1048576 bytes", "{}"},
		"sprintf with a wide precision":             {`sprintf("%.999999f%.999999f", [1, 1])`, "sprintf: the result could exceed 1048576 bytes", "{}"},
		"sprintf with an argument many times":       {`sprintf("` + strings.Repeat("%[1]s", 100) + `", ["` + long(10_000) + `"])`, "sprintf: the result could exceed 1048576 bytes", "{}"},
		"arguments of more bytes than are allowed":  {`sprintf("%s", [input])`, "sprintf: its arguments have more than 65536 bytes", `"` + long(70_000) + `"`},
		"a range with too many numbers":             {`numbers.range_step(0, 1000000000, 1)`, "numbers.range_step: the range has more than 1000 numbers; use numbers.range, which has no such limit", "{}"},
		"a number with a huge exponent":             {`numbers.range_step(0, input, 1)`, "numbers.range_step: its arguments: the exponent of 1e999999999 is too large", "1e999999999"},
		"patches that double a document":            {`json.patch({"a": {}}, [` + strings.Repeat(`{"op": "copy", "from": "", "path": "/b"}, `, 40) + `])`, "json.patch: with this many copies the result could exceed 1048576 bytes", "{}"},
		"a replacement that repeats the text":       {`regex.replace("` + long(2_000) + `", "a*", "$0$0$0")`, "regex.replace: the result could have 12014006 bytes, at most 1048576 are allowed", "{}"},
		"a pattern with too many states":            {`regex.split("(((a{10}){10}){10}b){1}(((a{10}){10}){10}b){1}(((a{10}){10}){10}b)(((a{10}){10}){10}b)(((a{10}){10}){10}b)", "a")`, "regex.split: the pattern has more than 4096 states", "{}"},
		"a pattern that reads a text over and over": {`regex.find_n("(a*b)|a", input, -1)`, "regex.find_n: it could take", `"` + long(20_000) + `"`},
		"a place among a text's":                    {`indexof_n(input, substring(input, 0, 15000))`, "indexof_n: it could take 450000000 steps, at most 134217728 are allowed", `"` + long(30_000) + `"`},
		"a subset of arrays":                        {`object.subset(numbers.range(1, 12000), numbers.range(2, 12001))`, "object.subset: its arguments have", "{}"},
		"a time zone":                               {`time.clock([0, "America/New_York"])`, "time.clock: time zones differ between machines: use UTC, and add the offset", "{}"},
		"the zone of the machine":                   {`time.format([0, "Local"])`, "time.format: time zones differ between machines: use UTC, and add the offset", "{}"},
		"a zone in either time":                     {`time.diff(0, [0, "Asia/Tokyo"])`, "time.diff: time zones differ between machines: use UTC, and add the offset", "{}"},
		"the abbreviation of a zone":                {`time.parse_ns("RFC1123", "Fri, 02 Jan 2026 12:00:00 EST")`, "time.parse_ns: time zones differ between machines: use UTC, and add the offset", "{}"},
		"the abbreviation of a zone, in a layout":   {`time.parse_ns("15:04 MST", "12:00 EST")`, "time.parse_ns: time zones differ between machines: use UTC, and add the offset", "{}"},
	} {
		t.Run(claim, func(t *testing.T) {
			p := newPolicy(t, h, sandbox.Limits{}, File{"a.rego", "package gleaner\ncollect := " + c.call})

			_, err := value(t.Context(), p, "collect", c.input)

			if kind(p, err) != policies.FaultInvalidCall || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %.300v, want %s", err, c.want)
			}
		})
	}
}

func TestCallBuiltin_ChargesInAdvance(t *testing.T) {
	broke := errors.New("broke")
	var asked []int64
	pay := func(units int64) error {
		asked = append(asked, units)
		return broke
	}

	_, err := callBuiltin(t.Context(), "regex.find_n", []string{`"a+"`, `"aaaa"`, `-1`}, pay)

	if !errors.Is(err, broke) {
		t.Errorf("got %v", err)
	}
	if len(asked) != 1 || asked[0] < 4*5/2 {
		t.Errorf("asked for %v steps", asked)
	}
}

func TestCallBuiltin_RejectsForbidden(t *testing.T) {
	for _, name := range []string{"http.send", "opa.runtime", "time.now_ns", "nonsense", ""} {
		_, err := callBuiltin(context.WithoutCancel(t.Context()), name, nil, func(int64) error { return nil })
		var fault *builtinError
		if !errors.As(err, &fault) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
