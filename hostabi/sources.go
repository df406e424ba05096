//go:build !wasip1

package hostabi

import "embed"

// Sources are the files of this Go module, for gleaner module new to put beside a
// module that is written with it. A guest has none.
//
//go:embed go.mod *.go
var Sources embed.FS
