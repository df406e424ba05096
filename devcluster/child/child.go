// Package child starts processes that are killed when the current process ends.
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

// thread starts all processes from one thread. Linux sends the parent-death signal when the
// thread that started the child ends, and Go can end any thread except one that is locked to
// a goroutine.
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

// Start calls cmd.Start. On Linux, the kernel kills the new process when the current process
// ends, even if that was killed itself; processes that the new process has started are not
// killed. On other systems, the new process continues to run.
func Start(cmd *exec.Cmd) error {
	tie(cmd)
	r := request{cmd, make(chan error, 1)}
	thread() <- r
	return <-r.result
}
