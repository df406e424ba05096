//go:build !linux

package devcluster

import (
	"errors"
	"os/exec"
)

var errNoNamespaces = errors.New("only Linux has namespaces")

// CheckNamespaces says why a Program can't have Namespaces here.
func CheckNamespaces() error { return errNoNamespaces }

func setNamespaces(*exec.Cmd) error { return errNoNamespaces }
