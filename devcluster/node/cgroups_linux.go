package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	cgroupRoot    = "/sys/fs/cgroup"
	cgroupPrefix  = "gleaner-node-" // then the process that started the node, and its port
	cgroupTimeout = 5 * time.Second
)

// sweepCgroups removes cgroups of nodes that were killed before Stop. They
// are empty, and what can't be removed is not worth an error.
func sweepCgroups() {
	for _, root := range cgroups(cgroupPrefix + "*") {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(root), cgroupPrefix), "-")
		pid, err := strconv.Atoi(owner)
		if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = removeCgroup(root)
		}
	}
}

// cgroups returns those of a name in every hierarchy: there is one in version 2, and
// one for each controller in version 1.
func cgroups(pattern string) []string {
	one, _ := filepath.Glob(filepath.Join(cgroupRoot, pattern)) // the pattern is valid
	many, _ := filepath.Glob(filepath.Join(cgroupRoot, "*", pattern))
	return append(one, many...)
}

// removeCgroups removes the cgroups of a node. The kernel holds
// one for a moment after its last process has ended.
func removeCgroups(name string) error {
	for _, root := range cgroups(name) {
		if err := removeCgroup(root); err != nil {
			return fmt.Errorf("remove cgroup: %w", err)
		}
	}
	return nil
}

func removeCgroup(root string) error {
	var folders []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			folders = append(folders, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.Reverse(folders) // children first
	deadline := time.Now().Add(cgroupTimeout)
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for _, folder := range folders {
		for {
			err := syscall.Rmdir(folder)
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s: %w", folder, err)
			}
			<-ticker.C
		}
	}
	return nil
}
