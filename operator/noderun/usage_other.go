//go:build !linux && !darwin

package noderun

import (
	"errors"

	"github.com/gleaner-dev/gleaner/operator/retain"
)

func usageOf(string) (retain.Usage, error) {
	return retain.Usage{}, errors.New("the usage of file systems can be read on Linux only")
}
