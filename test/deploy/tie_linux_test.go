package deploy

import (
	"os"
	"os/exec"
	"syscall"
)

// tieToParent has the kernel end the child when this process dies, as by a
// panic or a test's time limit.
func tieToParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// canConfine tells whether a command can be shown a root of its own.
var canConfine = os.Geteuid() == 0

// confine has a command see nothing but a folder, as the user of the image, who can
// write nothing there that is root's.
func confine(cmd *exec.Cmd, root string) {
	cmd.SysProcAttr.Chroot, cmd.Dir = root, "/"
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65532, Gid: 65532}
}
