package sandbox

import (
	"os"
	"sync"
)

// pagemap says which pages of this process have been written to. It is opened once, since
// a process that is confined can open nothing later. Nil where the machine has none.
var pagemap = sync.OnceValue(func() *os.File {
	file, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return nil // a matter of speed
	}
	return file
})

// Prepare opens what instances need of the machine, for a process that is about to give up
// the right to open files.
func Prepare() { pagemap() }
