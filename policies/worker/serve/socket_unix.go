//go:build unix

package serve

import "syscall"

func isSocket(file int) bool {
	var stat syscall.Stat_t
	return syscall.Fstat(file, &stat) == nil && stat.Mode&syscall.S_IFMT == syscall.S_IFSOCK
}
