package devcluster

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	nestedModule     = "github.com/gleaner-dev/gleaner/devcluster/binaries"
	kubernetesModule = "k8s.io/kubernetes"
)

// binariesModule is the nested module whose tool directives pin the control
// plane.
type binariesModule struct {
	dir     string
	version string // of k8s.io/kubernetes, such as v1.37.2
	key     string // names the folder of the built binaries
}

func locateModule() (binariesModule, error) {
	dir, err := locateModuleDir()
	if err != nil {
		return binariesModule{}, err
	}
	var mod []byte
	hash := sha256.New()
	for _, file := range []string{"go.sum", "basic-controllers/main.go", "go.mod"} {
		if mod, err = os.ReadFile(filepath.Join(dir, filepath.FromSlash(file))); err != nil {
			return binariesModule{}, fmt.Errorf("read module of the control plane: %w", err)
		}
		hash.Write(mod)
	}
	version, ok := requiredVersion(string(mod), kubernetesModule)
	if !ok {
		return binariesModule{}, fmt.Errorf("read %s: no requirement on %s", filepath.Join(dir, "go.mod"), kubernetesModule)
	}
	digest := hex.EncodeToString(hash.Sum(nil))[:12]
	key := strings.Join([]string{version, digest, runtime.GOOS, runtime.GOARCH}, "-")
	return binariesModule{dir: dir, version: version, key: key}, nil
}

// locateModuleDir looks next to this source file first, which is right unless
// the program was built with -trimpath or moved to another machine; then
// upwards from the working directory.
func locateModuleDir() (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		if dir := filepath.Join(filepath.Dir(file), "binaries"); isModule(dir) {
			return dir, nil
		}
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("locate devcluster/binaries: %w", err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		if found := filepath.Join(dir, "devcluster", "binaries"); isModule(found) {
			return found, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("locate devcluster/binaries: not found above " + wd + "; run from a checkout of Gleaner")
		}
	}
}

// isModule is false for a folder that has the same name in another project.
func isModule(dir string) bool {
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && strings.Contains(string(mod), "\nmodule "+nestedModule+"\n")
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
