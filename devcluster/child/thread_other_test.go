//go:build !linux

package child_test

// On other systems nothing happens to a child when a thread ends.
func threadID() int     { return 0 }
func firstThread() int  { return 0 }
func isThread(int) bool { return false }
