// Command backup-before-delete stores an object's manifest, and reads it back,
// before the object may go.
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
