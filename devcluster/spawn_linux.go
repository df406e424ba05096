package devcluster

import (
	"os/exec"
	"syscall"
)

// tieToParent has the kernel kill the child when this process dies, by
// whatever means. A group of its own keeps the terminal's Ctrl-C from the
// child, which Stop ends in order.
func tieToParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
