package attacks

import (
	"os/exec"
	"syscall"
)

// tieToParent has the kernel end the child when this process dies, as by a
// panic or a test's time limit.
func tieToParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
