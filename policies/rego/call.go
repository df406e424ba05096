package rego

import (
	"context"
	"errors"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/topdown/builtins"
)

// builtinError is a call that a policy may not make: its arguments are too large,
// or ask for too much. Other failures of a built-in are undefined, as in OPA.
type builtinError struct {
	name  string
	cause error
}

func (e *builtinError) Error() string { return fmt.Sprintf("%s: %v", e.name, e.cause) }
func (e *builtinError) Unwrap() error { return e.cause }

// What the host's work costs in units of fuel, of which a module uses about three
// in a nanosecond.
const (
	unitsPerCall = 5000
	unitsPerByte = 50 // of arguments and answers, which are read and written
	unitsPerStep = 10
)

// callBuiltin calls a built-in of the host with arguments as text, and gives its
// answer as text, which is empty when the call is undefined. Before
// the call is made, and again for its answer, it calls pay with units of fuel.
func callBuiltin(ctx context.Context, name string, args []string, pay func(units int64) error) ([]byte, error) {
	b, ok := allowed[name]
	if !ok {
		return nil, &builtinError{name: name, cause: errors.New("it may not be used")}
	}
	terms, size, err := readArguments(args, b.max)
	if err != nil {
		return nil, &builtinError{name: name, cause: err}
	}
	steps, err := b.steps(terms)
	if err != nil {
		return nil, &builtinError{name: name, cause: err}
	}
	if err := pay(int64(size)*unitsPerByte + int64(steps)*unitsPerStep); err != nil {
		return nil, err
	}
	answer, err := evaluate(ctx, name, terms)
	if answer == nil || err != nil {
		return nil, err
	}
	text, err := writeValue(answer.Value)
	if err != nil {
		return nil, &builtinError{name: name, cause: err}
	}
	return text, pay(int64(len(text)) * unitsPerByte)
}

// steps is how many steps the call may take beyond its bytes.
func (b builtin) steps(args []*ast.Term) (int, error) {
	if b.cost == nil {
		return 0, nil
	}
	n, err := b.cost(args)
	if err == nil && n > mostSteps {
		err = fmt.Errorf("it could take %d steps, where at most %d are allowed", n, mostSteps)
	}
	return n, err
}

func readArguments(args []string, most int) (terms []*ast.Term, size int, err error) {
	for _, arg := range args {
		size += len(arg)
	}
	if size > most {
		return nil, 0, fmt.Errorf("its arguments have %d bytes, where at most %d are allowed", size, most)
	}
	for _, arg := range args {
		term, err := readValue(arg)
		if err != nil {
			return nil, 0, fmt.Errorf("its arguments: %w", err)
		}
		terms = append(terms, term)
	}
	return terms, size, nil
}

// evaluate runs the built-in as OPA's own evaluator does. It is given no clock, no
// randomness and nothing that lasts longer than the call.
func evaluate(ctx context.Context, name string, args []*ast.Term) (answer *ast.Term, err error) {
	call := topdown.GetBuiltin(name)
	if call == nil {
		return nil, fmt.Errorf("OPA has no built-in %s", name)
	}
	within := topdown.BuiltinContext{
		Context:      ctx,
		Metrics:      metrics.New(),
		Cache:        builtins.Cache{},
		Capabilities: language(),
	}
	failed := call(within, args, func(t *ast.Term) error {
		answer = t
		return nil
	})
	if halt := (topdown.Halt{}); errors.As(failed, &halt) {
		return nil, &builtinError{name: name, cause: halt.Err}
	}
	if failed != nil {
		return nil, nil //nolint:nilerr // undefined: OPA's evaluator drops the error too, unless it is told to be strict
	}
	return answer, nil
}
