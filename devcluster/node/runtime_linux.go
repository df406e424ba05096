package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// RestartRuntime kills containerd, which starts again. Containers go on, and containerd
// finds them. It returns when containerd answers.
func (n *Node) RestartRuntime(ctx context.Context) error {
	pid, err := n.runtimePID()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(n.folder, "restart"), nil, 0o600); err != nil {
		return fmt.Errorf("have containerd start again: %w", err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill containerd: %w", err)
	}
	return n.await(ctx, "containerd", func(ctx context.Context) error {
		if now, err := n.runtimePID(); err != nil || now == pid {
			return errors.Join(err, errors.New("containerd has not ended"))
		}
		return n.containerdAnswers(ctx)
	})
}

// StopRuntime has containerd answer nothing until the function that it returns is called.
func (n *Node) StopRuntime() (resume func() error, err error) {
	pid, err := n.runtimePID()
	if err != nil {
		return nil, err
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return nil, fmt.Errorf("stop containerd: %w", err)
	}
	return func() error { return syscall.Kill(pid, syscall.SIGCONT) }, nil
}

// runtimePID returns the process ID of this node's containerd.
func (n *Node) runtimePID() (int, error) {
	processes, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return 0, err
	}
	for _, exe := range processes {
		program, err := os.Readlink(exe)
		if err != nil || program != n.tools.containerd {
			continue
		}
		folder, err := os.Readlink(filepath.Join(filepath.Dir(exe), "cwd"))
		if err != nil || folder != n.folder {
			continue
		}
		return strconv.Atoi(strings.TrimPrefix(filepath.Dir(exe), "/proc/"))
	}
	return 0, errors.New("containerd does not run")
}
