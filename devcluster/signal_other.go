//go:build !unix

package devcluster

import (
	"os"
	"os/exec"
)

// tieToParent cannot tie here: a child outlives a parent that was killed
// before Stop.
func tieToParent(*exec.Cmd) {}

// terminate kills, where there is no polite signal.
func terminate(p *os.Process) error { return p.Kill() }

func killAll(p *os.Process) error { return p.Kill() }
