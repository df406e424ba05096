//go:build !wasip1

package gleaner

import "embed"

// Sources are the files of this Go module, for gleaner module new to put beside a
// module that is written with it. A guest has none.
//
//go:embed go.mod README.md *.go finalize/*.go gleanertest/*.go internal/guest/*.go
var Sources embed.FS
