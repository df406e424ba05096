//go:build linux && !cgo

package confine

// threadCalls are system calls by which a C library creates threads: there is none.
var threadCalls []string
