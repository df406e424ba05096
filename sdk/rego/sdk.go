// Package rego holds the library that policies in Rego may import, as
// data.gleaner.sdk: verdicts, owners, kinds, metadata, the clock and settings. It holds
// the sources and their tests; what compiles them is policies/rego.
package rego

import "embed"

// Files are the sources of the library with their tests, whose names end in
// _test.rego.
//
//go:embed *.rego
var Files embed.FS
