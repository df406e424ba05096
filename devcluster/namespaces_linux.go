package devcluster

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

const namespaces = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS

// CheckNamespaces says why a Program can't have Namespaces here, as for want of root
// or inside a container. It tries.
func CheckNamespaces() error {
	cmd := exec.Command("mount", "-t", "proc", "proc", "/proc")
	// Unlike a clone, this makes the mounts private by itself.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mount in namespaces of its own: %w %s", err, strings.TrimSpace(string(output)))
	}
	return nil
}

// setNamespaces makes the command the first process of a PID namespace, and gives it a
// mount namespace. When the command ends, the kernel kills all other processes in the namespace.
func setNamespaces(cmd *exec.Cmd) error {
	cmd.SysProcAttr.Cloneflags = namespaces
	return nil
}
