// Package policytest asks a policy what a file of cases asks, and compares what
// it answers with what the file wants: one set of cases for every engine, so
// that a policy can be moved from one to another.
//
// It knows no engine: whatever is an Evaluator can be asked. Cases are about one
// request each; what becomes of an answer is not tested here.
package policytest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

// Case is a request, and the verdict or the fault that has to come of it.
type Case struct {
	Name      string // a claim
	Line      int    // in its file; 0: not known
	Request   hostabi.Request
	Want      hostabi.Verdict
	WantFault string // part of a fault's message; empty: Want counts
}

// Suite is what a file of cases holds.
type Suite struct {
	// Modules are those that are to answer the cases, each on its own: files or
	// folders, as the file names them, which is from its own folder. Whoever calls
	// Run or Check has a policy and needs none.
	Modules []string
	Cases   []Case
}

// Run asks a policy every case of a file, as tests with the cases' names.
func Run(t *testing.T, policy policies.Evaluator, file string) {
	t.Helper()
	cases, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			if err := Check(t.Context(), policy, c); err != nil {
				t.Error(err)
			}
		})
	}
}

// Check asks a policy one case, twice: the same request has to get the same
// verdict. The error says what is wrong with the answer.
func Check(ctx context.Context, policy policies.Evaluator, c Case) error {
	_, err := Ask(ctx, policy, c)
	return err
}

// Ask is Check, and gives the verdict as well: the zero Verdict where there is
// none. A verdict that is wrong comes with an error.
func Ask(ctx context.Context, policy policies.Evaluator, c Case) (hostabi.Verdict, error) {
	first, err := ask(ctx, policy, c)
	if err != nil {
		return first, err
	}
	second, err := ask(ctx, policy, c)
	if err != nil {
		return first, fmt.Errorf("ask %s again: %w", policy.Name(), err)
	}
	if diff := cmp.Diff(first, second, byValue); diff != "" {
		return first, fmt.Errorf("%s answers the same request in two ways (-first +second):\n%s", policy.Name(), diff)
	}
	return first, nil
}

// ask asks once.
func ask(ctx context.Context, policy policies.Evaluator, c Case) (hostabi.Verdict, error) {
	got, err := policy.Evaluate(ctx, c.Request)
	if err != nil {
		return hostabi.Verdict{}, expected(err, c)
	}
	if c.WantFault != "" {
		return got, fmt.Errorf("%s answers %s, and should be at fault with %q", policy.Name(), write(got), c.WantFault)
	}
	if !cmp.Equal(c.Want, got, byValue) {
		return got, fmt.Errorf("%s answers (-want +got):\n- %s\n+ %s", policy.Name(), write(c.Want), write(got))
	}
	return got, strict(policy, c.Request.Hook, got)
}

// expected passes over the fault that a case wants.
func expected(err error, c Case) error {
	fault := new(policies.Fault)
	switch {
	case !errors.As(err, &fault):
		return fmt.Errorf("nobody answers, and the policy is not to blame: %w", err)
	case c.WantFault == "":
		return fmt.Errorf("wants a verdict: %w", err)
	case !strings.Contains(fault.Message, c.WantFault):
		return fmt.Errorf("wants a fault with %q: %w", c.WantFault, err)
	}
	return nil
}

// strict sees that a verdict would pass the parser, also that of a policy that
// is not parsed.
func strict(policy policies.Evaluator, hook hostabi.Hook, v hostabi.Verdict) error {
	data, err := hostabi.MarshalVerdict(v)
	if err != nil {
		return err
	}
	if _, err := hostabi.ParseVerdict(hook, data); err != nil {
		return fmt.Errorf("%s answers what nobody may: %w", policy.Name(), err)
	}
	return nil
}

// byValue compares documents within verdicts by what they say: the order of
// fields is the engine's.
var byValue = cmp.FilterValues(
	func(a, b json.RawMessage) bool { return json.Valid(a) && json.Valid(b) },
	cmp.Transformer("JSON", func(raw json.RawMessage) any {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			return err.Error() // it was valid
		}
		return v
	}),
)

func write(v hostabi.Verdict) string {
	data, err := hostabi.MarshalVerdict(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
