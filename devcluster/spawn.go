package devcluster

import (
	"os/exec"
	"runtime"
)

// spawner starts child processes from one operating system thread, which lives
// until close.
//
// Linux delivers the parent-death signal when the *thread* that started the
// child ends, and the Go runtime ends threads as it likes. A thread held by a
// locked goroutine ends with the process and no sooner.
type spawner struct {
	requests chan spawnRequest
	done     chan struct{}
}

type spawnRequest struct {
	cmd    *exec.Cmd
	result chan error
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan spawnRequest), done: make(chan struct{})}
	go s.run()
	return s
}

func (s *spawner) run() {
	defer close(s.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for request := range s.requests {
		request.result <- request.cmd.Start()
	}
}

func (s *spawner) start(cmd *exec.Cmd) error {
	request := spawnRequest{cmd: cmd, result: make(chan error, 1)}
	s.requests <- request
	return <-request.result
}

// close must come after the last start. Children that still run are no longer
// safe from the end of the thread.
func (s *spawner) close() {
	close(s.requests)
	<-s.done
}
