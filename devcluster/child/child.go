// Package child starts processes that end with this one.
package child

import (
	"os/exec"
	"runtime"
	"sync"
)

// request is a command to start.
type request struct {
	cmd    *exec.Cmd
	result chan error
}

// thread is where all processes are started. Linux sends the parent-death signal when the
// thread ends that has started the child, and Go ends threads at any time, except that of a
// locked goroutine.
var thread = sync.OnceValue(func() chan<- request {
	requests := make(chan request)
	go func() {
		runtime.LockOSThread()
		for r := range requests {
			r.result <- r.cmd.Start()
		}
	}()
	return requests
})

// Start starts a command, as its method Start does. On Linux the kernel kills the process when
// this one ends, by whatever means; a process that it starts itself continues, unless it
// ends for another reason. On other systems it continues as well.
func Start(cmd *exec.Cmd) error {
	tie(cmd)
	r := request{cmd, make(chan error, 1)}
	thread() <- r
	return <-r.result
}
