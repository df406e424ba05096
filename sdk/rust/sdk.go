// Package rust has the SDK for modules in Rust, a crate, as files.
package rust

import "embed"

// Sources contains the files of the crate, without its tests. gleaner module new copies them next to a module that uses
// it.
//
//go:embed Cargo.toml README.md src
var Sources embed.FS
