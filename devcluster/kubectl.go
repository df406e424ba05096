package devcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// kubectlSkew is how many minor versions kubectl may be away from the API server:
// https://kubernetes.io/releases/version-skew-policy/#kubectl
const kubectlSkew = 1

// kubectlTimeout is how long the kubectl on the PATH may take to print its version.
const kubectlTimeout = 10 * time.Second

// FindKubectl returns the kubectl in KUBEBUILDER_ASSETS, see Build, or that on the PATH, for Options.Kubectl, or the reason
// why it is of no use: it is missing, or its version does not support the API server. The version is that of Options.KubernetesVersion.
func FindKubectl(ctx context.Context, version string) (string, error) {
	module, err := controlPlane.locatePinned()
	if err != nil {
		return "", err
	}
	server, err := controlPlane.at(version).resolve(module.version)
	if err != nil {
		return "", err
	}
	if a, err := findAssets(ctx, server); err == nil && a.folder != "" {
		return filepath.Join(a.folder, executable(kubectlName)), nil
	}
	return findKubectl(ctx, server)
}

func findKubectl(ctx context.Context, server string) (string, error) {
	path, err := exec.LookPath(kubectlName)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, kubectlTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, path, "version", "--client", "--output=json")
	command.WaitDelay = time.Second // for what a wrapper has started, which keeps the pipe open
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("run %s version: %w", path, err)
	}
	var version struct{ ClientVersion struct{ GitVersion string } }
	if err := json.Unmarshal(out, &version); err != nil {
		return "", fmt.Errorf("read version of %s: %w", path, err)
	}
	supported, err := supports(version.ClientVersion.GitVersion, server)
	if err != nil {
		return "", fmt.Errorf("read version of %s: %w", path, err)
	}
	if !supported {
		return "", fmt.Errorf("%s is %s, which does not support an API server of %s", path, version.ClientVersion.GitVersion, server)
	}
	return path, nil
}

func supports(client, server string) (bool, error) {
	c, errClient := minorOf(client)
	s, errServer := minorOf(server)
	return max(c-s, s-c) <= kubectlSkew, errors.Join(errClient, errServer)
}

// minorOf is 37 for v1.37.2 and v1.37.0-rc.1.
func minorOf(version string) (int, error) {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) != 3 || parts[0] != "v1" {
		return 0, fmt.Errorf("%q is no version of Kubernetes", version)
	}
	minor, err := strconv.Atoi(parts[1])
	if err != nil {
		return 0, fmt.Errorf("%q is no version of Kubernetes", version)
	}
	return minor, nil
}
