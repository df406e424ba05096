package deploy

import (
	"os"
	"os/exec"
	"syscall"
)

// canChroot reports whether a command can be run with chroot.
var canChroot = os.Geteuid() == 0

// chroot runs a command in a folder with chroot, as the image's user, who can't
// write root's files there.
func chroot(cmd *exec.Cmd, root string) {
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
}
