// Package hostabi defines the documents of the guest ABI and their names:
// [Request], which a module receives, [Verdict], which it returns, and
// [ParseVerdict], the only parser of verdicts, whichever engine they come from.
//
// It has no dependencies, so that it can be part of a module as well. It does not
// evaluate modules: engines do. Authors of modules import the sdk.
package hostabi

//go:generate go -C ../tools run ./schema ../hostabi/schema

// Version is the apiVersion of every request. A verdict has no apiVersion: it has
// the version of its request.
const Version = "abi.gleaner.dev/v1"

// Limits of the documents. Sizes are in bytes of JSON.
const (
	MaxRequestBytes = 8 << 20 // with the results of all rounds
	MaxVerdictBytes = 1 << 20
	MaxVerdictDepth = 64 // nested objects and arrays
	MaxStateBytes   = 4 << 10
	MaxReasonBytes  = 1 << 10
	MaxIntents      = 64
	MaxDependents   = 64
	MaxWaves        = 8 // of an order
	MaxWaveKinds    = 8 // of one wave
	MaxListLimit    = 500
	MaxWorkloads    = 100 // of an image
)
