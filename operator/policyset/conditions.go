package policyset

import (
	"context"
	"fmt"

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
		tree, issues := env.Compile(c.Expression)
		if issues.Err() != nil {
			return nil, fmt.Errorf("matchConditions %q can't be read: %w", c.Name, issues.Err())
		}
		if t := tree.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) && !t.IsExactType(cel.NullType) {
			return nil, fmt.Errorf("matchConditions %q gives %s: write an expression that is true or false", c.Name, t)
		}
		program, err := env.Program(tree, cel.CostLimit(apicel.PerCallLimit), cel.InterruptCheckFrequency(checkFrequency))
		if err != nil {
			return nil, fmt.Errorf("matchConditions %q can't be evaluated: %w", c.Name, err)
		}
		conditions = append(conditions, condition{name: c.Name, program: program})
	}
	return conditions, nil
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
