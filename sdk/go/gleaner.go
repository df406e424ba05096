// Package gleaner is what a policy or a finalizer in Go is written with. It
// turns a function from a request to a verdict into a WebAssembly module that
// Gleaner can run:
//
//	package main
//
//	import gleaner "github.com/gleaner-dev/gleaner/sdk/go"
//
//	func main() {} // is never called
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
// A module answers the hooks that it exports: propagate, collect, finalize and
// validate. Which they are is told by the exports alone, so this package has
// none: a module exports each hook that it answers, in two lines like the above.
//
// A module does no I/O. What it needs it asks for with [Act] and intents, and is
// asked again with their results. It starts afresh for each request: what it
// keeps in a variable is gone the next time, and what it wants to remember goes
// into the verdict's state. Its clock is the request's time.
//
// Handlers are plain functions, and are tested by go test, with package
// gleanertest.
package gleaner

import (
	"fmt"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/sdk/go/internal/guest"
)

// Handler answers one hook. The same request has to get the same verdict. An
// error is logged and ends the call without a verdict, which is a fault: what
// comes of that is the policy's onFault. An error is for what should never
// happen; for what may, there are [Wait], [Fail] and [Abstain].
type Handler func(Request) (Verdict, error)

// Serve answers the request that the host has called the module with. It is what
// an exported hook consists of, and is called once in a call.
func Serve(handler Handler) {
	if err := guest.Serve(guest.Current, handler); err != nil {
		guest.Current.Log(hostabi.LogError, err.Error())
		panic(err.Error())
	}
}

// Debugf writes a line of level debug to the module's log.
func Debugf(format string, args ...any) { logf(hostabi.LogDebug, format, args) }

// Infof writes a line of level info.
func Infof(format string, args ...any) { logf(hostabi.LogInfo, format, args) }

// Warnf writes a line of level warn.
func Warnf(format string, args ...any) { logf(hostabi.LogWarn, format, args) }

// Errorf writes a line of level error. It changes nothing about the verdict.
func Errorf(format string, args ...any) { logf(hostabi.LogError, format, args) }

func logf(level hostabi.LogLevel, format string, args []any) {
	guest.Current.Log(level, fmt.Sprintf(format, args...))
}
