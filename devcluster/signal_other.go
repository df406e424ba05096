//go:build !unix

package devcluster

import (
	"os"
	"os/exec"
)

// detach does nothing: there are no process groups.
func detach(*exec.Cmd) {}

// terminate kills, where there is no polite signal.
func terminate(p *os.Process) error { return p.Kill() }

func killAll(p *os.Process) error { return p.Kill() }
