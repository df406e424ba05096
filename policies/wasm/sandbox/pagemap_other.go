//go:build !linux

package sandbox

// Prepare does nothing on this system.
func Prepare() {}
