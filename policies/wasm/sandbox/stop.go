package sandbox

import (
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// explain converts the error of a call for the author of the module.
func (in *Instance) explain(err error) error {
	trace := traceOf(err)
	if fromHost := (*hostError)(nil); errors.As(err, &fromHost) {
		stopped := (*TrapError)(nil)
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
	case int64(in.fuelLeft.Get()) < 0:
		return in.exhausted(trace)
	case in.MemoryDenied():
		return &TrapError{
			Kind: MemoryLimit,
			Message: fmt.Sprintf("it needed more memory than its limit of %s and aborted: %s",
				formatBytes(in.pool.options.Limits.Memory), cause),
			Trace: trace,
		}
	default:
		return &TrapError{Kind: Trapped, Message: "it trapped: " + cause.Error(), Trace: trace}
	}
}

// hostError wraps the error of a host function while the engine propagates it.
type hostError struct{ err error }

func (e *hostError) Error() string { return e.err.Error() }

func (in *Instance) exhausted(trace []string) *TrapError {
	return &TrapError{
		Kind:    FuelExhausted,
		Message: fmt.Sprintf("it used up its fuel of %d units", in.pool.options.Limits.Fuel),
		Trace:   trace,
	}
}

// MemoryDenied reports whether the guest has exceeded its memory limit in this call.
func (in *Instance) MemoryDenied() bool { return in.memory != nil && in.memory.limitExceeded() }

const (
	maxFrames      = 10
	traceSeparator = "\nwasm stack trace:\n\t"
)

// frame is the name of a function, its parameters and its results. The name may contain
// parentheses, as in (*T).Method: the parameters are the last list but for the results.
var frame = regexp.MustCompile(`(?s)^(.*\S)\([\w,]*\)(?: \w+| \([\w,]+\))?$`)

// traceOf extracts function names from the text of the engine's error, which is the
// only place that has them. If the format changes, none are found.
func traceOf(err error) []string {
	_, text, _ := strings.Cut(err.Error(), traceSeparator)
	var trace []string
	for line := range strings.SplitSeq(text, "\n\t") {
		parts := frame.FindStringSubmatch(line)
		if parts == nil {
			continue
		}
		name := strings.TrimPrefix(parts[1], ".") // instances have no names
		if strings.HasPrefix(name, fuel.Prefix) {
			continue
		}
		if number, unnamed := strings.CutPrefix(name, "$"); unnamed {
			name = "function " + number
		}
		if trace = append(trace, truncate(name)); len(trace) == maxFrames {
			break
		}
	}
	return trace
}

// joinTrace joins a trace and collapses repetitions, as in endless recursion.
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

func formatBytes(n int64) string {
	if n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
