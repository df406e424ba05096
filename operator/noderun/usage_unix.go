//go:build linux || darwin

package noderun

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gleaner-dev/gleaner/operator/retain"
)

// usageOf returns the usage of the file system that has a path.
func usageOf(path string) (retain.Usage, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return retain.Usage{}, fmt.Errorf("read usage of the file system of %s: %w", path, err)
	}
	size := int64(s.Bsize)
	return retain.Usage{Capacity: int64(s.Blocks) * size, Available: int64(s.Bavail) * size}, nil //nolint:gosec // sizes of file systems are far below
}
