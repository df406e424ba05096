//go:build !unix

package worker

import (
	"errors"
	"os"
	"runtime"
)

// socketPair returns an error: modules are evaluated in sandboxes, which this system does not have.
func socketPair() (own, theirs *os.File, err error) {
	return nil, nil, errors.New("modules are not evaluated on " + runtime.GOOS + ": use Linux or macOS")
}
