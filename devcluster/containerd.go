package devcluster

import (
	"context"
	"io"
	"path/filepath"
)

// The programs of a container runtime.
var (
	containerd     = program{"containerd", "github.com/containerd/containerd/v2/cmd/containerd"}
	containerdShim = program{"containerd-shim-runc-v2", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"}
	containerdCtr  = program{"ctr", "github.com/containerd/containerd/v2/cmd/ctr"}
)

// BuildContainerd makes containerd with its shim and its client ctr, as Build makes the
// control plane, and returns the folder that has them. Systems have older ones.
func BuildContainerd(ctx context.Context, progress io.Writer) (string, error) {
	built, err := runtimes.build(ctx, []program{containerd, containerdShim, containerdCtr}, progress)
	if err != nil {
		return "", err
	}
	return filepath.Dir(built.pathOf(containerd)), nil
}
