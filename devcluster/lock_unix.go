//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package devcluster

import (
	"errors"
	"os"
	"syscall"
)

const hasLocks = true

// tryLock locks the file against other processes until it is closed or this
// process ends, and says whether it could.
func tryLock(file *os.File) (bool, error) {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return false, nil
	}
	return err == nil, err
}
