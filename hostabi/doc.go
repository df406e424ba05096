// Package hostabi holds the documents that a policy is asked with and answers
// with, and their names: what crosses the wall between the collector and
// whatever decides. [Request] is the question, [Verdict] the answer, and
// [ParseVerdict] the one parser of answers, whichever engine gave them.
//
// It has no dependencies, so that it fits into a module's sandbox as well, and
// it neither asks nor answers: engines do, and the sdk is what a module's author
// imports.
package hostabi

//go:generate go -C ../tools run ./schema ../hostabi/schema

// Version is the apiVersion of every request. A verdict has none: it answers a
// request, and in that request's version.
const Version = "abi.gleaner.dev/v1"

// Limits of the documents. Sizes are bytes of JSON.
const (
	MaxRequestBytes = 8 << 20 // with the results of all rounds
	MaxVerdictBytes = 1 << 20
	MaxVerdictDepth = 64 // objects and arrays within each other
	MaxStateBytes   = 4 << 10
	MaxReasonBytes  = 1 << 10
	MaxIntents      = 64
	MaxDependents   = 64
	MaxListLimit    = 500
)
