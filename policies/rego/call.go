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

// builtinError reports a call that is not allowed: its arguments are too large, or
// its cost is too high. Other failures of a built-in are undefined, as in OPA.
type builtinError struct {
	name  string
	cause error
}

func (e *builtinError) Error() string { return fmt.Sprintf("%s: %v", e.name, e.cause) }
func (e *builtinError) Unwrap() error { return e.cause }

// The cost of the host's work in units of fuel. A module uses about three units per
// nanosecond.
const (
	unitsPerCall = 5000
	unitsPerByte = 50 // of arguments and results
	unitsPerStep = 10
)

// callBuiltin calls a built-in of the host with arguments as text, and returns its
// result as text, empty if the call is undefined. It calls pay with units of fuel
// before the call and for the result.
func callBuiltin(ctx context.Context, name string, args []string, charge func(units int64) error) ([]byte, error) {
	b, ok := allowed[name]
	if !ok {
		return nil, &builtinError{name: name, cause: errors.New("it is not allowed")}
	}
	terms, size, err := readArguments(args, b.max)
	if err != nil {
		return nil, &builtinError{name: name, cause: err}
	}
	steps, err := b.steps(terms)
	if err != nil {
		return nil, &builtinError{name: name, cause: err}
	}
	if err := charge(int64(size)*unitsPerByte + int64(steps)*unitsPerStep); err != nil {
		return nil, err
	}
	result, err := evaluate(ctx, name, terms)
	if result == nil || err != nil {
		return nil, err
	}
	text, err := writeValue(result.Value)
	if err != nil {
		return nil, &builtinError{name: name, cause: err}
	}
	return text, charge(int64(len(text)) * unitsPerByte)
}

// steps returns the number of steps of a call, in addition to the cost of its
// bytes.
func (b builtin) steps(args []*ast.Term) (int, error) {
	if b.cost == nil {
		return 0, nil
	}
	n, err := b.cost(args)
	if err == nil && n > maxSteps {
		err = fmt.Errorf("it could take %d steps, at most %d are allowed", n, maxSteps)
	}
	return n, err
}

func readArguments(args []string, limit int) (terms []*ast.Term, size int, err error) {
	for _, arg := range args {
		size += len(arg)
	}
	if size > limit {
		return nil, 0, fmt.Errorf("its arguments have %d bytes, at most %d are allowed", size, limit)
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

// evaluate runs the built-in as OPA's evaluator does, without a clock, randomness
// or a cache beyond the call.
func evaluate(ctx context.Context, name string, args []*ast.Term) (result *ast.Term, err error) {
	call := topdown.GetBuiltin(name)
	if call == nil {
		return nil, fmt.Errorf("OPA has no built-in %s", name)
	}
	builtinCtx := topdown.BuiltinContext{
		Context:      ctx,
		Metrics:      metrics.New(),
		Cache:        builtins.Cache{},
		Capabilities: language(),
	}
	failed := call(builtinCtx, args, func(t *ast.Term) error {
		result = t
		return nil
	})
	if halt := (topdown.Halt{}); errors.As(failed, &halt) {
		return nil, &builtinError{name: name, cause: halt.Err}
	}
	if failed != nil {
		return nil, nil //nolint:nilerr // undefined: OPA's evaluator drops the error too, unless it is strict
	}
	return result, nil
}
