// Package policytest evaluates a policy on a file of cases, and compares its
// verdicts with the expected ones. The same cases can be used with every engine.
//
// It does not depend on an engine: it takes any Evaluator. A case has one request;
// what is done with a verdict is not tested here.
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

// Case is a request with its expected verdict or fault.
type Case struct {
	Name      string // describes the expected behavior
	Line      int    // in its file; 0: unknown
	Request   hostabi.Request
	Want      hostabi.Verdict
	WantFault string // part of a fault's message; empty: Want is expected
}

// Suite is the content of a file of cases.
type Suite struct {
	// Modules are the files or folders of the modules to test, one at a time,
	// relative to the folder of the file. Run and Check do not use them.
	Modules []string
	Cases   []Case
}

// Run evaluates a policy on every case of a file, as subtests.
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

// Check evaluates a policy on one case, twice, since the same request must have the
// same verdict. The error describes a wrong result.
func Check(ctx context.Context, policy policies.Evaluator, c Case) error {
	_, err := Evaluate(ctx, policy, c)
	return err
}

// Evaluate is like Check, and also returns the verdict, or the zero Verdict if there is
// none. A wrong verdict is returned with an error.
func Evaluate(ctx context.Context, policy policies.Evaluator, c Case) (hostabi.Verdict, error) {
	first, err := evaluateOnce(ctx, policy, c)
	if err != nil {
		return first, err
	}
	second, err := evaluateOnce(ctx, policy, c)
	if err != nil {
		return first, fmt.Errorf("evaluate %s again: %w", policy.Name(), err)
	}
	if diff := cmp.Diff(first, second, byValue); diff != "" {
		return first, fmt.Errorf("%s returns different verdicts for the same request (-first +second):\n%s", policy.Name(), diff)
	}
	return first, nil
}

// evaluateOnce evaluates the case once.
func evaluateOnce(ctx context.Context, policy policies.Evaluator, c Case) (hostabi.Verdict, error) {
	got, err := policy.Evaluate(ctx, c.Request)
	if err != nil {
		return hostabi.Verdict{}, checkFault(err, c)
	}
	if c.WantFault != "" {
		return got, fmt.Errorf("%s returns %s, want a fault with %q", policy.Name(), formatVerdict(got), c.WantFault)
	}
	if !cmp.Equal(c.Want, got, byValue) {
		return got, fmt.Errorf("%s returns (-want +got):\n- %s\n+ %s", policy.Name(), formatVerdict(c.Want), formatVerdict(got))
	}
	return got, checkValid(policy, c.Request.Hook, got)
}

// checkFault returns nil for the fault that a case wants.
func checkFault(err error, c Case) error {
	fault := new(policies.Fault)
	switch {
	case !errors.As(err, &fault):
		return fmt.Errorf("host error: %w", err)
	case c.WantFault == "":
		return fmt.Errorf("want a verdict: %w", err)
	case !strings.Contains(fault.Message, c.WantFault):
		return fmt.Errorf("want a fault with %q: %w", c.WantFault, err)
	}
	return nil
}

// checkValid checks that a verdict is valid, also if it was not parsed.
func checkValid(policy policies.Evaluator, hook hostabi.Hook, v hostabi.Verdict) error {
	data, err := hostabi.MarshalVerdict(v)
	if err != nil {
		return err
	}
	if _, err := hostabi.ParseVerdict(hook, data); err != nil {
		return fmt.Errorf("%s returns an invalid verdict: %w", policy.Name(), err)
	}
	return nil
}

// byValue compares JSON documents in verdicts by value: the order of fields depends
// on the engine.
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

func formatVerdict(v hostabi.Verdict) string {
	data, err := hostabi.MarshalVerdict(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
