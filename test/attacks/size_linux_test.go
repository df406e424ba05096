package attacks

import (
	"os"
	"syscall"
)

// allocatedSize returns the inode of a file, and its allocated size.
func allocatedSize(file string) (inode uint64, bytes int64, ok bool) {
	info, err := os.Stat(file)
	if err != nil {
		return 0, 0, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return stat.Ino, stat.Blocks * 512, true
}
