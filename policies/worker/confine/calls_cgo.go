//go:build linux && cgo

package confine

// threadCalls are system calls by which the C library creates threads. Gleaner is built
// without it; tests under the race detector are not.
var threadCalls = []string{"clone3", "set_tid_address", "prctl", "sched_setaffinity", "arch_prctl"}
