package rego

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

var faultKinds = map[sandbox.Kind]policies.FaultKind{
	sandbox.FuelExhausted: policies.FaultFuelExhausted,
	sandbox.MemoryLimit:   policies.FaultMemoryLimit,
	sandbox.TimedOut:      policies.FaultTimedOut,
	sandbox.Trapped:       policies.FaultTrapped,
}

// undefinedAdvice is the advice for a rule that is undefined. Abstain is no option where
// there is no next policy.
var undefinedAdvice = map[hostabi.Hook]string{
	hostabi.HookPropagate: `return {"decision": "Abstain"} to leave the decision to the next policy`,
	hostabi.HookCollect:   `return {"decision": "Abstain"} to leave the decision to the next policy`,
	hostabi.HookProtect:   `return {"decision": "Abstain"} to leave the decision to the next policy`,
	hostabi.HookRetain:    `return {"decision": "Abstain"} to leave the decision to the next policy`,
	hostabi.HookFinalize:  `return {"decision": "Wait"} to be evaluated again, {"decision": "Done"} if nothing is left to do, or {"decision": "Fail", "reason": "…"}`,
	hostabi.HookValidate:  `return {"decision": "Valid"}, or {"decision": "Invalid", "reason": "…"}`,
}

// fault converts an error to a *policies.Fault if the module caused it.
func (p *Policy) fault(hook hostabi.Hook, err error) error {
	f := &policies.Fault{Policy: p.options.Name}
	var (
		rejected   *sandbox.RejectedError
		stopped    *sandbox.TrapError
		builtinErr *builtinError
		verdictErr *hostabi.VerdictError
	)
	switch {
	case errors.Is(err, errNoHook):
		f.Kind = policies.FaultMissingHook
		f.Message = fmt.Sprintf("it has no rule %s", hook)
	case errors.Is(err, errUndefined):
		f.Kind = policies.FaultNoVerdict
		f.Message = fmt.Sprintf("rule %s is undefined for this request; %s", hook, undefinedAdvice[hook])
	case errors.As(err, &rejected):
		f.Kind, f.Message = policies.FaultRejected, rejected.Message
	case errors.As(err, &stopped):
		f.Kind = faultKinds[stopped.Kind]
		f.Message = fmt.Sprintf("rule %s: %s%s", hook, stopped.Message, describeTrace(stopped.Trace))
	case errors.As(err, &builtinErr):
		f.Kind, f.Message = policies.FaultInvalidCall, fmt.Sprintf("rule %s: %s", hook, builtinErr)
	case errors.As(err, &verdictErr):
		f.Kind, f.Message = policies.FaultInvalidVerdict, fmt.Sprintf("rule %s: %s", hook, verdictErr)
	default:
		return fmt.Errorf("evaluate policy %s: %w", p.options.Name, err)
	}
	return f
}

// describeTrace lists the rules and functions of the policy that were being evaluated, the
// innermost first. The module calls them g0.data.gleaner.collect, where the number
// counts replacements by with.
func describeTrace(trace []string) string {
	const maxRules = 3
	var rules []string
	for _, frame := range trace {
		_, name, ok := strings.Cut(frame, ".data.")
		if !ok || slices.Contains(rules, "data."+name) {
			continue
		}
		if rules = append(rules, "data."+name); len(rules) == maxRules {
			break
		}
	}
	if len(rules) == 0 {
		return ""
	}
	return ", in " + strings.Join(rules, " ← ")
}

// explainAbort rephrases messages of the module.
func explainAbort(message string) string {
	for _, c := range []struct{ says, means string }{
		{"var assignment conflict", "the rule or function has conflicting values: make its conditions mutually exclusive, or use else"},
		{"object insert conflict", "a key of an object has conflicting values"},
	} {
		if where, ok := strings.CutSuffix(message, ": "+c.says); ok {
			return trimColumn(where) + ": " + c.means
		}
	}
	if !strings.Contains(message, " ") {
		return "it aborted in " + message // OPA gives no other information
	}
	return message
}

// trimColumn returns the file and line, without the column.
func trimColumn(location string) string {
	if i := strings.LastIndexByte(location, ':'); i > 0 && strings.Count(location, ":") > 1 {
		return location[:i]
	}
	return location
}
