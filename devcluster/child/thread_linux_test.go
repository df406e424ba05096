package child_test

import (
	"fmt"
	"os"
	"syscall"
)

// threadID returns the ID of the calling thread.
func threadID() int { return syscall.Gettid() }

// firstThread returns the ID of the thread that ends with the process.
func firstThread() int { return os.Getpid() }

// isThread reports whether a thread of this process exists.
func isThread(id int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", id))
	return err == nil
}
