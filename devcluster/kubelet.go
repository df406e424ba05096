package devcluster

import (
	"context"
	"io"
)

// Kubelet is the name of the program that BuildKubelet makes.
const Kubelet = "kubelet"

// BuildKubelet makes the kubelet of the control plane's version, as Build makes the
// control plane, and returns its path. It is apart because only nodes need it.
func BuildKubelet(ctx context.Context, progress io.Writer) (string, error) {
	built, err := controlPlane.build(ctx, []program{kubelet}, progress)
	if err != nil {
		return "", err
	}
	return built.pathOf(kubelet), nil
}
