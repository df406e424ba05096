//go:build !linux

package child

import "os/exec"

// tie does nothing: there is no parent-death signal.
func tie(*exec.Cmd) {}
