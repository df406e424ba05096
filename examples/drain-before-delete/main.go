// Command drain-before-delete deletes what uses an object, stage by stage, before
// the object may go.
//
// See README.md on how it is built and tried.
package main

import gleaner "github.com/gleaner-dev/gleaner/sdk/go"

func main() {} // is never called

// Finalize answers finalize.
//
//go:wasmexport finalize
func Finalize() { gleaner.Serve(finalizer) }

// Validate answers validate.
//
//go:wasmexport validate
func Validate() { gleaner.Serve(validate) }
