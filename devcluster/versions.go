package devcluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/gleaner-dev/gleaner/devcluster/gobuild"
)

// versionVariable names the version of Kubernetes where Options has none: so a test suite runs on another version.
const versionVariable = "GLEANER_KUBERNETES_VERSION"

// otherVersions are the versions of Kubernetes that a control plane can have, besides that of devcluster/binaries, with their patch
// releases in the Go module proxy.
var otherVersions = []string{"v1.36.3", "v1.35.4", "v1.34.4", "v1.33.13"}

var (
	minorVersion = regexp.MustCompile(`^v?1\.(\d+)$`)
	fullVersion  = regexp.MustCompile(`^v?(1\.\d+\.\d+)$`)
)

// at returns the module with another version of Kubernetes; "" is that of the environment, or else its own.
func (n nested) at(version string) nested {
	n.wanted = version
	return n
}

// resolve returns the version that is wanted.
func (n nested) resolve(pinned string) (string, error) {
	wanted := cmp.Or(n.wanted, os.Getenv(versionVariable))
	if wanted == "" {
		return pinned, nil
	}
	if full := fullVersion.FindStringSubmatch(wanted); full != nil {
		return "v" + full[1], nil
	}
	known := append([]string{pinned}, otherVersions...)
	if minor := minorVersion.FindStringSubmatch(wanted); minor != nil {
		if i := slices.IndexFunc(known, func(v string) bool { return strings.HasPrefix(v, "v1."+minor[1]+".") }); i >= 0 {
			return known[i], nil
		}
	}
	return "", fmt.Errorf("version %q of Kubernetes: use one of %s, or another patch release of them", wanted, strings.Join(known, ", "))
}

// hasBasicControllers reports whether the program basic-controllers can be built: it is written for one version.
func (m locatedModule) hasBasicControllers() bool { return !m.other }

// atVersion returns a module like m with another version of Kubernetes, in the cache folder. The go command chooses the versions of the
// other modules, which are those that Kubernetes requires, and verifies their checksums.
func (m locatedModule) atVersion(ctx context.Context, version string, progress io.Writer) (locatedModule, error) {
	pinned, err := os.ReadFile(filepath.Join(m.dir, "go.mod"))
	if err != nil {
		return locatedModule{}, fmt.Errorf("read module devcluster/%s: %w", m.folder, err)
	}
	text, err := moduleOf(string(pinned), m.version, version)
	if err != nil {
		return locatedModule{}, err
	}
	base, err := cacheFolder()
	if err != nil {
		return locatedModule{}, err
	}
	other := m
	other.version, other.other, other.dir = version, true, filepath.Join(base, "module-"+version)
	other.key = strings.Join([]string{version, runtime.GOOS, runtime.GOARCH}, "-")
	if err := os.MkdirAll(base, 0o755); err != nil {
		return locatedModule{}, fmt.Errorf("create cache folder: %w", err)
	}
	unlock, err := lockFile(ctx, other.dir+".lock", progress)
	if err != nil {
		return locatedModule{}, err
	}
	defer unlock()
	if present, err := os.ReadFile(filepath.Join(other.dir, templateFile)); err == nil && string(present) == text {
		return other, nil
	}
	fmt.Fprintf(progress, "%s: choosing the modules of Kubernetes %s\n", label, version)
	return other, other.write(ctx, text)
}

const templateFile = "template" // what the go.mod was made of; written last

func (m locatedModule) write(ctx context.Context, text string) error {
	if err := errors.Join(os.RemoveAll(m.dir), os.MkdirAll(m.dir, 0o755), os.WriteFile(filepath.Join(m.dir, "go.mod"), []byte(text), 0o600)); err != nil {
		return fmt.Errorf("write the module of Kubernetes %s: %w", m.version, err)
	}
	cmd := exec.CommandContext(ctx, "go", "mod", "tidy")
	cmd.Dir, cmd.Env = m.dir, gobuild.Environment("GOFLAGS=-mod=mod")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("choose the modules of Kubernetes %s: %w\n%s", m.version, err, lastLines(out.String(), errorTailLines))
	}
	return os.WriteFile(filepath.Join(m.dir, templateFile), []byte(text), 0o600)
}

var (
	goLine = regexp.MustCompile(`(?m)^go .*$`)
	block  = regexp.MustCompile(`(?ms)^(tool|replace) \(\n.*?^\)\n`)
)

// moduleOf returns the go.mod of another version of Kubernetes: its programs, and the replacements of its own modules.
func moduleOf(pinned, from, to string) (string, error) {
	minor, err := minorOf(to)
	if err != nil {
		return "", err
	}
	if first, _ := minorOf(otherVersions[len(otherVersions)-1]); minor < first {
		return "", fmt.Errorf("version %s of Kubernetes: use 1.%d or a newer one", to, first)
	}
	text := fmt.Sprintf("module %s\n\n%s\n\nrequire k8s.io/kubernetes %s\n", nestedModule, goLine.FindString(pinned), to)
	for _, part := range block.FindAllString(pinned, -1) {
		text += "\n" + strings.ReplaceAll(part, " v0"+strings.TrimPrefix(from, "v1"), " v0"+strings.TrimPrefix(to, "v1"))
	}
	return text, nil
}
