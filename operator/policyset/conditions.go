package policyset

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	apicel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// variable is the one that an expression has.
const variable = "object"

// celEnvironment is the API server's own, with its libraries, and the variable.
func celEnvironment() (*cel.Env, error) {
	version := environment.DefaultCompatibilityVersion()
	base, err := environment.MustBaseEnvSet(version).Extend(environment.VersionedOptions{
		IntroducedVersion: version,
		EnvOptions:        []cel.EnvOption{cel.Variable(variable, cel.DynType)},
	})
	if err != nil {
		return nil, fmt.Errorf("make the environment of expressions: %w", err)
	}
	return base.NewExpressionsEnv(), nil
}

// condition is one expression, compiled.
type condition struct {
	name    string
	program cel.Program
}

// compileConditions compiles a policy's conditions. The error is for their author.
func compileConditions(env *cel.Env, list []v1alpha1.MatchCondition) ([]condition, error) {
	conditions := make([]condition, 0, len(list))
	for _, c := range list {
		program, err := compile(env, fmt.Sprintf("matchConditions %q", c.Name), c.Expression, "that is true or false", cel.BoolType, cel.NullType)
		if err != nil {
			return nil, err
		}
		conditions = append(conditions, condition{name: c.Name, program: program})
	}
	return conditions, nil
}

// compile compiles an expression, whose result has one of some types, as far as that is known before it is evaluated. The error is
// for its author, and has the name of its field.
func compile(env *cel.Env, field, expression, advice string, want ...*cel.Type) (cel.Program, error) {
	tree, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, fmt.Errorf("%s can't be read: %w", field, issues.Err())
	}
	if t := tree.OutputType(); !slices.ContainsFunc(append(want, cel.DynType), t.IsExactType) {
		return nil, fmt.Errorf("%s gives %s: write an expression %s", field, t, advice)
	}
	program, err := env.Program(tree, cel.CostLimit(apicel.PerCallLimit), cel.InterruptCheckFrequency(checkFrequency))
	if err != nil {
		return nil, fmt.Errorf("%s can't be evaluated: %w", field, err)
	}
	return program, nil
}

// checkFrequency is after how many steps of a loop an evaluation looks whether it
// has been given up.
const checkFrequency = 100

// match reports whether an object meets all conditions. One that is false or null
// is not met, whatever becomes of the others; an error of one is an error.
func match(conditions []condition) func(context.Context, map[string]any) (bool, error) {
	if len(conditions) == 0 {
		return nil
	}
	return func(ctx context.Context, object map[string]any) (bool, error) {
		var firstErr error
		for _, c := range conditions {
			met, err := c.met(ctx, object)
			switch {
			case err != nil && firstErr == nil:
				firstErr = err
			case err == nil && !met:
				return false, nil
			}
		}
		return firstErr == nil, firstErr
	}
}

func (c condition) met(ctx context.Context, object map[string]any) (bool, error) {
	value, _, err := c.program.ContextEval(ctx, map[string]any{variable: object})
	if err != nil {
		return false, fmt.Errorf("matchConditions %q: %w", c.name, err)
	}
	switch value.Type() {
	case celtypes.BoolType:
		return value.Value() == true, nil
	case celtypes.NullType:
		return false, nil
	default:
		return false, fmt.Errorf("matchConditions %q gives %s: write an expression that is true or false", c.name, value.Type())
	}
}
