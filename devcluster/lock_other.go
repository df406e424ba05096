//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package devcluster

import "os"

const hasLocks = false

// tryLock always gets the lock here. Two builds at once cost time and no more.
func tryLock(*os.File) (bool, error) { return true, nil }
