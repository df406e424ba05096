// Package gleaner is the SDK for policies and finalizers in Go. It turns a function
// from a request to a verdict into a WebAssembly module that Gleaner can run:
//
//	package main
//
//	import gleaner "github.com/gleaner-dev/gleaner/sdk/go"
//
//	func main() {} // never called
//
//	//go:wasmexport collect
//	func Collect() { gleaner.Serve(collect) }
//
//	func collect(r gleaner.Request) (gleaner.Verdict, error) {
//		if r.Object.Metadata.Labels["keep"] == "true" {
//			return gleaner.Verdict{Decision: gleaner.Orphan, Reason: "it has keep=true"}, nil
//		}
//		return gleaner.Verdict{Decision: gleaner.Abstain}, nil
//	}
//
// A module implements the hooks that it exports: propagate, collect, protect,
// retain, finalize and validate. Since the exports alone define them, this package has none: a module
// exports each hook in two lines like the above.
//
// A module does no I/O. It requests what it needs with [Act] and intents, and is
// evaluated again with their results. It starts afresh for each request: variables
// do not survive a call, so what it needs later must be in the verdict's state. Its
// clock is the request's time.
//
// Handlers are plain functions. Test them with go test and package gleanertest.
package gleaner

import (
	"fmt"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/sdk/go/internal/guest"
)

// Handler evaluates a request for one hook. The same request must have the same
// verdict. An error is logged and ends the call without a verdict, which is a
// fault: the policy's onFault applies. Use errors only for bugs; otherwise decide
// [Wait], [Fail] or [Abstain].
type Handler func(Request) (Verdict, error)

// Serve evaluates the request of the current call with a handler. An exported hook
// calls it once.
func Serve(handler Handler) {
	if err := guest.Serve(guest.Current, handler); err != nil {
		guest.Current.Log(hostabi.LogError, err.Error())
		panic(err.Error())
	}
}

// Debugf logs a message with level debug.
func Debugf(format string, args ...any) { logf(hostabi.LogDebug, format, args) }

// Infof logs a message with level info.
func Infof(format string, args ...any) { logf(hostabi.LogInfo, format, args) }

// Warnf logs a message with level warn.
func Warnf(format string, args ...any) { logf(hostabi.LogWarn, format, args) }

// Errorf logs a message with level error. It does not affect the verdict.
func Errorf(format string, args ...any) { logf(hostabi.LogError, format, args) }

func logf(level hostabi.LogLevel, format string, args []any) {
	guest.Current.Log(level, fmt.Sprintf(format, args...))
}
