//go:build unix

package filestore

import (
	"errors"
	"os"
	"syscall"
	"time"
)

const lockInterval = 20 * time.Millisecond

// lock takes the lock that bbolt takes again, for the same open file, which succeeds. It reports
// whether it got it in time.
func lock(file *os.File, exclusive bool, timeout time.Duration) (bool, error) {
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	for deadline := time.Now().Add(timeout); ; time.Sleep(lockInterval) {
		err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return false, err
		case time.Now().After(deadline):
			return false, nil
		}
	}
}

func isReadOnly(err error) bool {
	return errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS)
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
