//go:build !linux

package sandbox

// Prepare opens what instances need of the machine: nothing, on this system.
func Prepare() {}
