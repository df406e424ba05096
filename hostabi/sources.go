//go:build !wasip1

package hostabi

import "embed"

// Sources contains the files of this Go module. gleaner module new copies them next
// to a module that uses the package. A guest does not contain them.
//
//go:embed go.mod *.go
var Sources embed.FS
