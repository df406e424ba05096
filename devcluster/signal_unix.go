//go:build unix

package devcluster

import (
	"os"
	"os/exec"
	"syscall"
)

// detach gives the process a group of its own, which keeps the terminal's Ctrl-C from it:
// Stop ends processes in order.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// killAll ends the process and what it started.
func killAll(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }
