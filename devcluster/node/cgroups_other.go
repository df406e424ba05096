//go:build !linux

package node

const cgroupPrefix = "gleaner-node-"

func sweepCgroups() {}

func removeCgroups(string) error { return nil }
