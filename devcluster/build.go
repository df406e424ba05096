package devcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	cacheVariable    = "GLEANER_CACHE"  // replaces the user's cache folder
	progressInterval = 15 * time.Second // between two lines of a long build
	lockInterval     = 100 * time.Millisecond
	errorTailLines   = 30 // etcd says how it is used after the error
)

// Binaries are the paths of the built programs.
type Binaries struct {
	Etcd              string
	APIServer         string
	ControllerManager string
	Kubectl           string
	Version           string // of Kubernetes, such as v1.37.2
}

// A source is the package that a program is built from.
type source struct{ program, path string }

// packages to build, in this order, by the name of the program.
var packages = []source{
	{Etcd, "go.etcd.io/etcd/server/v3"},
	{APIServer, "k8s.io/kubernetes/cmd/kube-apiserver"},
	{ControllerManager, "k8s.io/kubernetes/cmd/kube-controller-manager"},
	{"kubectl", "k8s.io/kubernetes/cmd/kubectl"},
}

// Build makes the control plane from source, once per user and version, and
// returns at once when that has been done. Processes that call it at the same
// time wait for one another. Progress may be nil.
func Build(ctx context.Context, progress io.Writer) (Binaries, error) {
	dir, version, err := buildAll(ctx, "", packages, progress)
	if err != nil {
		return Binaries{}, err
	}
	return binariesIn(dir, version), nil
}

// buildAll returns the folder of these programs, whose name has the suffix.
func buildAll(ctx context.Context, suffix string, sources []source, progress io.Writer) (dir, version string, err error) {
	if progress == nil {
		progress = io.Discard
	}
	module, err := locateModule()
	if err != nil {
		return "", "", err
	}
	base, err := cacheFolder()
	if err != nil {
		return "", "", err
	}
	target := filepath.Join(base, module.key+suffix)
	if isBuilt(target) {
		return target, module.version, nil
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", "", fmt.Errorf("create cache folder: %w", err)
	}
	unlock, err := lockFile(ctx, target+".lock", progress)
	if err != nil {
		return "", "", err
	}
	defer unlock()
	if !isBuilt(target) { // another process may have built it meanwhile
		if err := buildInto(ctx, module, sources, target, progress); err != nil {
			return "", "", err
		}
	}
	return target, module.version, nil
}

func cacheFolder() (string, error) {
	base := os.Getenv(cacheVariable)
	if base == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("locate cache folder (set %s): %w", cacheVariable, err)
		}
		base = filepath.Join(user, "gleaner")
	}
	base, err := filepath.Abs(filepath.Join(base, "devcluster"))
	if err != nil {
		return "", fmt.Errorf("locate cache folder: %w", err)
	}
	return base, nil
}

// isBuilt needs no more than the folder: it is renamed into place when complete.
func isBuilt(target string) bool {
	_, err := os.Stat(target)
	return err == nil
}

func binariesIn(dir, version string) Binaries {
	path := func(program string) string { return filepath.Join(dir, executable(program)) }
	return Binaries{
		Etcd:              path(Etcd),
		APIServer:         path(APIServer),
		ControllerManager: path(ControllerManager),
		Kubectl:           path("kubectl"),
		Version:           version,
	}
}

func executable(program string) string {
	if runtime.GOOS == "windows" {
		return program + ".exe"
	}
	return program
}

// buildInto fills a temporary folder and renames it to target, so that a
// killed build leaves nothing that looks complete.
func buildInto(ctx context.Context, module binariesModule, sources []source, target string, progress io.Writer) error {
	dir, err := os.MkdirTemp(filepath.Dir(target), "building-*")
	if err != nil {
		return fmt.Errorf("create build folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // does nothing once renamed
	for _, p := range sources {
		args := []string{"build", "-trimpath", "-ldflags", linkerFlags(module.version, p.program),
			"-o", filepath.Join(dir, executable(p.program)), p.path}
		if err := buildOne(ctx, goBuild{module.dir, p.program, args}, progress); err != nil {
			return err
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil { // MkdirTemp gives 0700
		return fmt.Errorf("open up build folder: %w", err)
	}
	if err := os.Rename(dir, target); err != nil && !isBuilt(target) {
		return fmt.Errorf("put binaries in place: %w", err)
	}
	return nil
}

// linkerFlags give the Kubernetes programs their version: the API server
// derives the served APIs from it, and would call itself v0.0.0 otherwise.
func linkerFlags(version, program string) string {
	flags := "-s -w"
	if program == Etcd {
		return flags
	}
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	const variable = " -X k8s.io/component-base/version."
	return flags + variable + "gitVersion=" + version + variable + "gitMajor=" + major + variable + "gitMinor=" + minor
}

type goBuild struct {
	dir     string
	program string
	args    []string
}

func buildOne(ctx context.Context, build goBuild, progress io.Writer) error {
	started := time.Now()
	fmt.Fprintf(progress, "devcluster: building %s\n", build.program)
	cmd := exec.CommandContext(ctx, "go", build.args...)
	cmd.Dir = build.dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", // the caller's may not fit this module
		"CGO_ENABLED=0") // as the product is built, so that what both use is compiled once
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output

	done := make(chan error, 1)
	go func() { done <- cmd.Run() }()
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			fmt.Fprintf(progress, "devcluster: building %s (%s)\n", build.program, since(started))
		case err := <-done:
			if err != nil {
				return fmt.Errorf("build %s: %w\n%s", build.program, errors.Join(ctx.Err(), err), lastLines(output.String(), errorTailLines))
			}
			fmt.Fprintf(progress, "devcluster: built %s in %s\n", build.program, since(started))
			return nil
		}
	}
}

func since(t time.Time) time.Duration { return time.Since(t).Round(100 * time.Millisecond) }

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
