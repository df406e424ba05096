package devcluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// nested is a nested module that pins the versions of programs with tool directives. Its
// folder is next to this file.
type nested struct {
	folder string
	path   string   // of the module
	main   string   // module that determines the version of the programs
	hashed []string // files that the programs depend on
	wanted string   // another version, as in Options.KubernetesVersion
}

var (
	controlPlane = nested{folder: "binaries", path: nestedModule, main: "k8s.io/kubernetes", hashed: []string{"go.sum", "basic-controllers/main.go", "go.mod"}}
	runtimes     = nested{
		folder: "containerd", path: "github.com/gleaner-dev/gleaner/devcluster/containerd", main: "github.com/containerd/containerd/v2", hashed: []string{"go.sum", "go.mod"},
	}
)

const nestedModule = "github.com/gleaner-dev/gleaner/devcluster/binaries"

// locatedModule is a nested module on this machine.
type locatedModule struct {
	nested
	dir     string
	version string // of main, such as v1.37.2
	key     string // names the folder of the built programs
	other   bool   // it has another version than the one in its go.mod
}

// locate returns the module. One with another version of Kubernetes is made in the cache folder first.
func (n nested) locate(ctx context.Context, progress io.Writer) (locatedModule, error) {
	module, err := n.locatePinned()
	if err != nil || n.folder != controlPlane.folder {
		return module, err
	}
	version, err := n.resolve(module.version)
	if err != nil || version == module.version {
		return module, err
	}
	return module.atVersion(ctx, version, progress)
}

// locatePinned returns the module with the versions in its go.mod.
func (n nested) locatePinned() (locatedModule, error) {
	dir, err := n.locateDir()
	if err != nil {
		return locatedModule{}, err
	}
	var mod []byte
	hash := sha256.New()
	for _, file := range n.hashed {
		if mod, err = os.ReadFile(filepath.Join(dir, filepath.FromSlash(file))); err != nil {
			return locatedModule{}, fmt.Errorf("read module devcluster/%s: %w", n.folder, err)
		}
		hash.Write(mod)
	}
	version, ok := requiredVersion(string(mod), n.main)
	if !ok {
		return locatedModule{}, fmt.Errorf("read %s: no requirement on %s", filepath.Join(dir, "go.mod"), n.main)
	}
	digest := hex.EncodeToString(hash.Sum(nil))[:12]
	key := strings.Join([]string{version, digest, runtime.GOOS, runtime.GOARCH}, "-")
	return locatedModule{nested: n, dir: dir, version: version, key: key}, nil
}

// locateDir looks next to this source file first, which is right unless
// the program was built with -trimpath or moved to another machine; then
// upwards from the working directory.
func (n nested) locateDir() (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		if dir := filepath.Join(filepath.Dir(file), n.folder); n.isAt(dir) {
			return dir, nil
		}
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("locate devcluster/%s: %w", n.folder, err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		if found := filepath.Join(dir, "devcluster", n.folder); n.isAt(found) {
			return found, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("locate devcluster/" + n.folder + ": not found above " + wd + "; run from a checkout of Gleaner")
		}
	}
}

// isAt is false for a folder that has the same name in another project.
func (n nested) isAt(dir string) bool {
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && strings.Contains(string(mod), "\nmodule "+n.path+"\n")
}

func requiredVersion(gomod, module string) (string, bool) {
	for line := range strings.Lines(gomod) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) >= 2 && fields[0] == module && strings.HasPrefix(fields[1], "v") {
			return fields[1], true
		}
	}
	return "", false
}
