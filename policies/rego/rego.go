// Package rego runs policies that are written in Rego. OPA's own compiler turns
// their source into WebAssembly, which runs in the sandbox like any other module:
// the same limits, the same fuel, and the same answer for the same request.
//
// A policy is package gleaner, with one rule for each hook that it answers, whose
// value is the verdict. It has no documents but its input, the request, and no
// built-ins that look beyond it: those are refused when the module is loaded, by
// name. The package fetches no sources, chooses no policies, and writes nothing.
package rego
