package devcluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

const (
	assetsVariable = "KUBEBUILDER_ASSETS" // a folder with programs for tests, as for controller-runtime's envtest
	versionTimeout = 30 * time.Second     // for a program to say which version it is
)

// assets are the programs in the folder that KUBEBUILDER_ASSETS names, as setup-envtest downloads them. The zero value has none.
type assets struct {
	folder  string
	version string // such as v1.37.0
}

// envtest are the programs that this process has looked for.
var envtest struct {
	sync.Mutex
	looked map[lookup]looked
}

// lookup is a folder, and the version of Kubernetes that its programs are for.
type lookup struct{ folder, version string }

type looked struct {
	found   assets
	refused error
}

// inAssets are the programs that envtest has. kube-controller-manager is none of them.
var inAssets = []program{etcd, apiServer, client}

// findAssets returns the programs in the folder that the environment names, if they can take the place of those of a version of Kubernetes.
// The error says why not.
func findAssets(ctx context.Context, version string) (assets, error) {
	folder := os.Getenv(assetsVariable)
	if folder == "" {
		return assets{}, nil
	}
	envtest.Lock()
	defer envtest.Unlock()
	key := lookup{folder, version}
	if l, known := envtest.looked[key]; known {
		return l.found, l.refused
	}
	a, err := readAssets(ctx, folder, version)
	if ctx.Err() == nil {
		if envtest.looked == nil {
			envtest.looked = map[lookup]looked{}
		}
		envtest.looked[key] = looked{a, err}
	}
	return a, err
}

func readAssets(ctx context.Context, folder, version string) (assets, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return assets{}, err
	}
	for _, p := range inAssets {
		if _, err := os.Stat(filepath.Join(folder, executable(p.name))); err != nil {
			return assets{}, fmt.Errorf("%s=%s has no %s: %w", assetsVariable, folder, p.name, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	path := filepath.Join(folder, executable(APIServer))
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return assets{}, fmt.Errorf("%s=%s: %s --version: %w", assetsVariable, folder, APIServer, err)
	}
	wanted, err := minorOf(version)
	if err != nil {
		return assets{}, err
	}
	found := strings.TrimPrefix(strings.TrimSpace(string(out)), "Kubernetes ")
	if minor, err := minorOf(found); err != nil || minor != wanted {
		return assets{}, fmt.Errorf("%s=%s has %s %s instead of v1.%d: run setup-envtest use 1.%d.x", assetsVariable, folder, APIServer, found, wanted, wanted)
	}
	return assets{folder, found}, nil
}

// key names the folder in the cache with links to the programs, and with those that are built in addition from a module.
func (a assets) key(module locatedModule) string {
	hash := sha256.Sum256([]byte(a.folder + "\n" + module.key))
	return strings.Join([]string{"assets", a.version, hex.EncodeToString(hash[:])[:12], runtime.GOOS, runtime.GOARCH}, "-")
}

// link links the programs into a folder.
func (a assets) link(target string) error {
	for _, p := range inAssets {
		name := filepath.Join(target, executable(p.name))
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("link %s: %w", p.name, err)
		}
		if err := os.Symlink(filepath.Join(a.folder, executable(p.name)), name); err != nil {
			return fmt.Errorf("link %s: %w", p.name, err)
		}
	}
	return nil
}
