package attacks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// memoryLimit returns the container's memory limit in bytes.
func memoryLimit(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("../../config/manager/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := yaml.Unmarshal(text, &deployment); err != nil {
		t.Fatal(err)
	}
	limit := deployment.Spec.Template.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory]
	if limit.IsZero() {
		t.Fatal("Deployment has no memory limit")
	}
	return limit.Value()
}

// residentMemory returns the memory in bytes of a process and all of its descendants, as
// counted for a container: shared memory counts once, and files in memory count
// even if they are not mapped.
func residentMemory(pid int) (int64, error) {
	processes, err := descendants(pid)
	if err != nil {
		return 0, err
	}
	var sum int64
	files := map[uint64]int64{} // by inode
	for _, p := range append(processes, pid) {
		bytes, err := proportionalMemory(p)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) { // the process may have ended
			return 0, err
		}
		sum += bytes
		filesInMemory(p, files)
	}
	for _, bytes := range files {
		sum += bytes
	}
	return sum, nil
}

// proportionalMemory returns the proportional set size of a process without files in memory.
// For a process whose map can't be read, it returns the
// resident set size.
func proportionalMemory(pid int) (int64, error) {
	rollup := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
	anonymous, err := fieldSize(rollup, "Pss_Anon:")
	if err != nil {
		return fieldSize(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:")
	}
	file, err := fieldSize(rollup, "Pss_File:")
	return anonymous + file, err
}

// filesInMemory adds the sizes of files in memory that a process has open.
func filesInMemory(pid int, sizes map[uint64]int64) {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // the pattern is valid
	for _, link := range links {
		if name, err := os.Readlink(link); err != nil || !strings.HasPrefix(name, "/memfd:") {
			continue
		}
		if inode, bytes, ok := allocatedSize(link); ok {
			sizes[inode] = bytes
		}
	}
}

func fieldSize(file, field string) (int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == field {
			kibibytes, err := strconv.ParseInt(words[1], 10, 64)
			return kibibytes << 10, err
		}
	}
	return 0, nil // zombies have no such field
}

// descendants returns the children of a process, and theirs. Not every kernel lists
// children, so the parents of all processes are read.
func descendants(pid int) ([]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		// The name is in parentheses and may contain spaces.
		words := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		parent, err := strconv.Atoi(words[1])
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		children[parent] = append(children[parent], child)
	}
	var all []int
	for next := children[pid]; len(next) > 0; {
		child := next[0]
		all = append(all, child)
		next = append(next[1:], children[child]...)
	}
	return all, nil
}
