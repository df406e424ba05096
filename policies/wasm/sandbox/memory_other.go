//go:build !linux

package sandbox

func newMemory(limit int64, _ *image) memory { return &heapMemory{limit: uint64(limit)} }
