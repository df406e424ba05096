//go:build linux || darwin

package noderun

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/gleaner-dev/gleaner/operator/retain"
)

// usageOf returns the usage of the file system that has a path.
func usageOf(path string) (retain.Usage, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return retain.Usage{}, fmt.Errorf("read usage of the file system of %s: %w", path, err)
	}
	if size := uint64(s.Bsize); size == 0 || s.Blocks > math.MaxInt64/size || s.Bavail > s.Blocks { //nolint:gosec // never negative
		return retain.Usage{}, fmt.Errorf("the file system of %s reports %d of %d blocks of %d bytes as available", path, s.Bavail, s.Blocks, s.Bsize)
	}
	return retain.Usage{Capacity: int64(s.Blocks) * int64(s.Bsize), Available: int64(s.Bavail) * int64(s.Bsize)}, nil //nolint:gosec // compared above
}
