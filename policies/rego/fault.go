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
	sandbox.Exhausted: policies.FaultExhausted,
	sandbox.NoMemory:  policies.FaultMemoryLimit,
	sandbox.TimedOut:  policies.FaultTimedOut,
	sandbox.Trapped:   policies.FaultTrapped,
}

// instead is what a rule may say where it would be undefined. Where there is no next policy
// to ask, to abstain is no answer.
var instead = map[hostabi.Hook]string{
	hostabi.HookPropagate: `say {"decision": "Abstain"} where it has nothing to say`,
	hostabi.HookCollect:   `say {"decision": "Abstain"} where it has nothing to say`,
	hostabi.HookFinalize:  `say {"decision": "Wait"} where it has to be asked again, {"decision": "Done"} where nothing is left to do, or {"decision": "Fail", "reason": "…"}`,
	hostabi.HookValidate:  `say {"decision": "Valid"}, or {"decision": "Invalid", "reason": "…"}`,
}

// fault says whose fault an error is, and returns it as one of the policy if it
// is the module's.
func (p *Policy) fault(hook hostabi.Hook, err error) error {
	f := &policies.Fault{Policy: p.options.Name}
	var (
		refusal *sandbox.Refusal
		stopped *sandbox.Stopped
		misused *builtinError
		bad     *hostabi.VerdictError
	)
	switch {
	case errors.Is(err, errNoHook):
		f.Kind = policies.FaultMissingHook
		f.Message = fmt.Sprintf("it has no rule %s", hook)
	case errors.Is(err, errUndefined):
		f.Kind = policies.FaultNoVerdict
		f.Message = fmt.Sprintf("rule %s is undefined for this request; %s", hook, instead[hook])
	case errors.As(err, &refusal):
		f.Kind, f.Message = policies.FaultRefused, refusal.Message
	case errors.As(err, &stopped):
		f.Kind = faultKinds[stopped.Kind]
		f.Message = fmt.Sprintf("rule %s: %s%s", hook, stopped.Message, within(stopped.Trace))
	case errors.As(err, &misused):
		f.Kind, f.Message = policies.FaultMisuse, fmt.Sprintf("rule %s: %s", hook, misused)
	case errors.As(err, &bad):
		f.Kind, f.Message = policies.FaultBadVerdict, fmt.Sprintf("rule %s: %s", hook, bad)
	default:
		return fmt.Errorf("ask policy %s: %w", p.options.Name, err)
	}
	return f
}

// within names the author's own rules and functions that were being evaluated,
// the innermost first. The module calls them g0.data.gleaner.collect, where the
// number counts what is replaced by with.
func within(trace []string) string {
	const few = 3
	var rules []string
	for _, frame := range trace {
		_, name, ok := strings.Cut(frame, ".data.")
		if !ok || slices.Contains(rules, "data."+name) {
			continue
		}
		if rules = append(rules, "data."+name); len(rules) == few {
			break
		}
	}
	if len(rules) == 0 {
		return ""
	}
	return ", in " + strings.Join(rules, " ← ")
}

// clarify says in other words what the module says of itself.
func clarify(message string) string {
	for _, c := range []struct{ says, means string }{
		{"var assignment conflict", "the rule or function has two values at once: make its conditions exclude each other, or use else"},
		{"object insert conflict", "one key of an object has two values at once"},
	} {
		if where, ok := strings.CutSuffix(message, ": "+c.says); ok {
			return withoutColumn(where) + ": " + c.means
		}
	}
	if !strings.Contains(message, " ") {
		return "it gave up in " + message // which is all that OPA says
	}
	return message
}

// withoutColumn leaves file and line, as all messages about a source have.
func withoutColumn(place string) string {
	if i := strings.LastIndexByte(place, ':'); i > 0 && strings.Count(place, ":") > 1 {
		return place[:i]
	}
	return place
}
