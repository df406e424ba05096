package sandbox

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// explain says in an author's words why a call ended.
func (in *Instance) explain(err error) error {
	trace := traceOf(err)
	if fromHost := (*hostError)(nil); errors.As(err, &fromHost) {
		stopped := (*Stopped)(nil)
		if errors.As(fromHost.err, &stopped) && stopped.Trace == nil {
			stopped.Trace = trace
		}
		return fromHost.err
	}
	if bug := runtime.Error(nil); errors.As(err, &bug) {
		return fmt.Errorf("host function panicked: %w", err)
	}
	cause := err
	for next := errors.Unwrap(cause); next != nil; next = errors.Unwrap(cause) {
		cause = next
	}
	switch {
	case int64(in.left.Get()) < 0:
		return in.exhausted(trace)
	case in.Denied():
		return &Stopped{
			Kind: NoMemory,
			Message: fmt.Sprintf("it needed more memory than its limit of %s and gave up: %s",
				bytesText(in.pool.options.Limits.Memory), cause),
			Trace: trace,
		}
	default:
		return &Stopped{Kind: Trapped, Message: "it trapped: " + cause.Error(), Trace: trace}
	}
}

// hostError marks the error of a host function on its way through the engine.
type hostError struct{ err error }

func (e *hostError) Error() string { return e.err.Error() }

func (in *Instance) exhausted(trace []string) *Stopped {
	return &Stopped{
		Kind:    Exhausted,
		Message: fmt.Sprintf("it used up its fuel of %d units", in.pool.options.Limits.Fuel),
		Trace:   trace,
	}
}

// Denied tells whether the guest has been refused more memory in this call.
func (in *Instance) Denied() bool { return in.memory != nil && in.memory.denied() }

const (
	mostFrames     = 10
	traceSeparator = "\nwasm stack trace:\n\t"
)

// traceOf takes the names of functions from the text in which the engine has
// them, and has them only there. Were that text to change, none would be found.
func traceOf(err error) []string {
	_, text, _ := strings.Cut(err.Error(), traceSeparator)
	var trace []string
	for line := range strings.SplitSeq(text, "\n\t") {
		name, _, isFrame := strings.Cut(line, "(")
		name = strings.TrimPrefix(name, ".") // instances have no names
		if !isFrame || strings.HasPrefix(name, fuel.Prefix) {
			continue
		}
		if number, unnamed := strings.CutPrefix(name, "$"); unnamed {
			name = "function " + number
		}
		if trace = append(trace, clip(name)); len(trace) == mostFrames {
			break
		}
	}
	return trace
}

// joinTrace shortens what repeats, as endless recursion does.
func joinTrace(trace []string) string {
	var b strings.Builder
	for i := 0; i < len(trace); {
		same := 1
		for i+same < len(trace) && trace[i+same] == trace[i] {
			same++
		}
		if i > 0 {
			b.WriteString(" ← ")
		}
		b.WriteString(trace[i])
		if same > 1 {
			fmt.Fprintf(&b, " (%d times or more)", same)
		}
		i += same
	}
	return b.String()
}

func bytesText(n int64) string {
	if n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
