// Package rego evaluates policies in Rego. OPA's compiler translates their source
// to WebAssembly, which runs in the sandbox like any other module: with the same
// limits and the same fuel, and with the same verdict for the same request.
//
// A policy is package gleaner, with one rule for each hook that it implements,
// whose value is the verdict. It has no data but its input, the request. Built-ins
// that access anything else are rejected when the module is loaded. The package
// does not fetch sources, select policies or write objects.
package rego
