package attacks

import (
	"os"
	"os/exec"
	"syscall"
)

// tieToParent has the kernel end the child when this process dies, as by a
// panic or a test's time limit.
func tieToParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// allocated returns the number of a file, and how much of it is not a hole.
func allocated(file string) (inode uint64, bytes int64, ok bool) {
	info, err := os.Stat(file)
	if err != nil {
		return 0, 0, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return stat.Ino, stat.Blocks * 512, true
}
