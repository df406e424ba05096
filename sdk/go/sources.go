//go:build !wasip1

package gleaner

import "embed"

// Sources contains the files of this Go module. gleaner module new copies them next
// to a module that uses the package. A guest does not contain them.
//
//go:embed go.mod README.md *.go finalize/*.go gleanertest/*.go internal/guest/*.go internal/jsonread/*.go
var Sources embed.FS
