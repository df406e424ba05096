// Command keep-data is a policy that keeps claims with data in them: those that
// are marked, those that a ConfigMap vouches for, and all of a deleted owner's.
//
// See ../../README.md on how it is built.
package main

import gleaner "github.com/gleaner-dev/gleaner/sdk/go"

func main() {} // is never called

// Propagate answers propagate.
//
//go:wasmexport propagate
func Propagate() { gleaner.Serve(propagate) }

// Collect answers collect.
//
//go:wasmexport collect
func Collect() { gleaner.Serve(collect) }

// Validate answers validate.
//
//go:wasmexport validate
func Validate() { gleaner.Serve(validate) }
