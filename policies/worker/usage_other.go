//go:build !linux

package worker

import (
	"syscall"
	"time"
)

// usageKnown says whether this system tells what a process uses.
const usageKnown = false

// usage is not known on this system: the wall clock decides alone.
func usage(int) (memory int64, cpu time.Duration, ok bool) { return 0, 0, false }

// isStopped is not known on this system.
func isStopped(int) bool { return false }

func raiseOOMScore(int) {}

func usesNamespaces(*syscall.SysProcAttr) bool { return false }
