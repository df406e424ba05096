//go:build !linux

package confine

import "syscall"

// Apply does nothing on this system, and reports that nothing is active.
func Apply(Options) []string { return nil }

// Attributes are how a worker is started: as any process on this system.
func Attributes(bool) *syscall.SysProcAttr { return nil }
