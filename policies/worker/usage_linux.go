package worker

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
)

// usageKnown says whether this system tells what a process uses.
const usageKnown = true

// usage returns the resident memory of a process that is its own, in bytes, and the
// processor time that it has used. It reports false for one that is gone.
func usage(pid int) (memory int64, cpu time.Duration, ok bool) {
	folder := "/proc/" + strconv.Itoa(pid)
	status, err := os.ReadFile(folder + "/status")
	if err != nil {
		return 0, 0, false
	}
	stat, err := os.ReadFile(folder + "/stat")
	if err != nil {
		return 0, 0, false
	}
	// Pages of the program's own file are shared by all workers, and are not counted.
	return field(status, "RssAnon:") + field(status, "RssShmem:"), processorTime(stat), true
}

// field reads a line of /proc/pid/status, which counts in KiB.
func field(status []byte, name string) int64 {
	_, rest, ok := bytes.Cut(status, []byte("\n"+name))
	if !ok {
		return 0
	}
	line, _, _ := bytes.Cut(rest, []byte(" kB"))
	n, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// processorTime reads utime and stime, the 14th and 15th field of /proc/pid/stat, in
// hundredths of a second. The second field, a name in parentheses, may have spaces.
func processorTime(stat []byte) time.Duration {
	const utime, stime = 14 - 3, 15 - 3 // after the parenthesis, the third field is the first
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= stime {
		return 0
	}
	u, _ := strconv.ParseInt(string(fields[utime]), 10, 64)
	s, _ := strconv.ParseInt(string(fields[stime]), 10, 64)
	return time.Duration(u+s) * 10 * time.Millisecond
}

// isStopped reports whether a signal has stopped a process: the third field of
// /proc/pid/stat is its state. A debugger's t is another.
func isStopped(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	return len(fields) > 0 && string(fields[0]) == "T"
}

// raiseOOMScore has the kernel end a worker before it ends the operator.
func raiseOOMScore(pid int) {
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte("1000"), 0) // best effort
}

func usesNamespaces(a *syscall.SysProcAttr) bool { return a.Cloneflags != 0 }
