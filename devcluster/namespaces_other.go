//go:build !linux

package devcluster

import (
	"errors"
	"os/exec"
)

var errNoNamespaces = errors.New("only Linux has namespaces")

// CanGiveNamespaces says why a Program can't have Namespaces here.
func CanGiveNamespaces() error { return errNoNamespaces }

func giveNamespaces(*exec.Cmd) error { return errNoNamespaces }
