package sandbox

import (
	"os"
	"sync"
)

// pagemap tells which pages of this process have been written to. It is opened
// once, since a confined process cannot open files later. Nil if it is not
// available.
var pagemap = sync.OnceValue(func() *os.File {
	file, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return nil // only slower
	}
	return file
})

// Prepare opens the files that instances need, for a process that is about to be
// confined.
func Prepare() { pagemap() }
