//go:build unix && !linux

package devcluster

import (
	"os/exec"
	"syscall"
)

// tieToParent cannot tie here: without a parent-death signal, a child outlives
// a parent that was killed before Stop.
func tieToParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
