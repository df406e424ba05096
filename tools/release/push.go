package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/registry"
)

// The manifest of a chart in a registry has a creation time. With a fixed one, the same chart has the same digest.
const created = "1970-01-01T00:00:00Z"

// chartRepository returns where the chart is published: next to the image, as registry/owner/charts, since the image has the name of the
// chart, and "helm push" adds that name.
func (r *release) chartRepository() string { return path.Join(path.Dir(r.registry), "charts") }

// pushChart sends the chart of a release that is written to the registry of its image, as "helm push" does, with the credentials of
// "helm registry login" or "docker login". It returns the address for "helm install".
func (r *release) pushChart() (string, error) {
	version := strings.TrimPrefix(r.version, "v")
	file := filepath.Join(r.folder, fmt.Sprintf("gleaner-%s.tgz", version))
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("push the chart: %s is missing: write the release first, without -push-chart", file)
	}
	if err != nil {
		return "", fmt.Errorf("push the chart: %w", err)
	}
	chart, err := loader.LoadFile(file)
	if err != nil {
		return "", fmt.Errorf("push the chart %s: %w", file, err)
	}
	var options []registry.ClientOption
	if onLoopback(r.registry) {
		options = append(options, registry.ClientOptPlainHTTP()) // as for images
	}
	client, err := registry.NewClient(options...)
	if err != nil {
		return "", fmt.Errorf("push the chart: %w", err)
	}
	repository := r.chartRepository() + "/" + chart.Name()
	result, err := client.Push(data, repository+":"+version, registry.PushOptCreationTime(created))
	if err != nil {
		return "", fmt.Errorf("push the chart to %s: %w", repository, err)
	}
	return fmt.Sprintf("oci://%s --version %s (%s)", repository, version, result.Manifest.Digest), nil
}

// onLoopback reports whether a repository is on this machine.
func onLoopback(repository string) bool {
	host, _, _ := strings.Cut(repository, "/")
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
