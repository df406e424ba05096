package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster/download"
	"github.com/gleaner-dev/gleaner/devcluster/gobuild"
)

const (
	cacheVariable  = "GLEANER_CACHE" // replaces the user's cache folder
	lockInterval   = 100 * time.Millisecond
	label          = "devcluster" // begins every line of progress
	kubectlName    = "kubectl"
	errorTailLines = 30 // etcd says how it is used after the error
)

// Binaries are the paths of the built programs.
type Binaries struct {
	Etcd              string
	APIServer         string
	ControllerManager string
	Kubectl           string
	Version           string // of Kubernetes, such as v1.37.2
}

// program is one that is built, and its main package.
type program struct{ name, path string }

var (
	etcd              = program{Etcd, "go.etcd.io/etcd/server/v3"}
	apiServer         = program{APIServer, "k8s.io/kubernetes/cmd/kube-apiserver"}
	controllerManager = program{ControllerManager, "k8s.io/kubernetes/cmd/kube-controller-manager"}
	client            = program{kubectlName, "k8s.io/kubernetes/cmd/kubectl"}
	kubelet           = program{Kubelet, "k8s.io/kubernetes/cmd/kubelet"}

	// basicControllers takes the place of kube-controller-manager.
	basicControllers = program{"basic-controllers", nestedModule + "/basic-controllers"}
)

// Build makes the control plane and kubectl from source, once per user and
// version, and returns at once when that has been done. Processes that call it
// at the same time wait for one another. Progress may be nil. If the environment
// variable KUBEBUILDER_ASSETS names a folder with kube-apiserver, etcd and kubectl
// of the same minor version, only the rest is built.
func Build(ctx context.Context, progress io.Writer) (Binaries, error) {
	return controlPlane.build(ctx, []program{etcd, apiServer, controllerManager, client}, progress)
}

// build builds programs of a nested module.
func (n nested) build(ctx context.Context, programs []program, progress io.Writer) (Binaries, error) {
	module, err := n.locate(ctx, progress)
	if err != nil {
		return Binaries{}, err
	}
	from, err := module.find(ctx, programs, download.Source{}, progress)
	if err != nil {
		return Binaries{}, err
	}
	return from.complete(ctx, module, programs, progress)
}

// place is a folder of the cache with programs, or for them.
type place struct {
	folder  string
	version string // of Kubernetes
	assets  assets // to link to; the zero value has none
	why     error  // what others have built is not used; nil if nothing was asked for

	downloaded bool
}

// find returns the place of programs: where KUBEBUILDER_ASSETS is linked to, where they were built, where they were downloaded, or where
// they are to be built.
func (m locatedModule) find(ctx context.Context, programs []program, from download.Source, progress io.Writer) (place, error) {
	base, err := cacheFolder()
	if err != nil {
		return place{}, err
	}
	built := place{folder: filepath.Join(base, m.key), version: m.version}
	if m.folder != controlPlane.folder {
		return built, nil
	}
	found, refused := findAssets(ctx, m.version)
	if found.folder != "" {
		return place{folder: filepath.Join(base, found.key(m)), version: found.version, assets: found}, nil
	}
	if len(missing(built.folder, programs)) == 0 || from.Index == "" {
		built.why = refused
		return built, nil
	}
	downloaded := filepath.Join(base, "envtest-"+m.key)
	version := download.VersionIn(downloaded)
	if version == "" {
		version, err = fetch(ctx, from, m.version, downloaded, progress)
	}
	if err != nil {
		built.why = errors.Join(refused, err)
		return built, ctx.Err()
	}
	return place{folder: downloaded, version: version, downloaded: true}, nil
}

// fetch downloads programs, unless another process has done that.
func fetch(ctx context.Context, from download.Source, wanted, folder string, progress io.Writer) (string, error) {
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return "", fmt.Errorf("create cache folder: %w", err)
	}
	unlock, err := lockFile(ctx, folder+".lock", progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	if version := download.VersionIn(folder); version != "" {
		return version, nil
	}
	return from.Fetch(ctx, wanted, folder, progress)
}

// complete builds the programs that a place does not have.
func (p place) complete(ctx context.Context, module locatedModule, programs []program, progress io.Writer) (Binaries, error) {
	if len(missing(p.folder, programs)) == 0 {
		return binariesIn(p.folder, p.version), nil
	}
	if progress == nil {
		progress = io.Discard
	}
	if p.why != nil {
		fmt.Fprintf(progress, "%s: building from source, since %v\n", label, p.why)
	}
	if err := os.MkdirAll(p.folder, 0o755); err != nil {
		return Binaries{}, fmt.Errorf("create cache folder: %w", err)
	}
	unlock, err := lockFile(ctx, p.folder+".lock", progress)
	if err != nil {
		return Binaries{}, err
	}
	defer unlock()
	if p.assets.folder != "" {
		if err := p.assets.link(p.folder); err != nil {
			return Binaries{}, err
		}
	}
	if left := missing(p.folder, programs); len(left) > 0 { // another process may have built them meanwhile
		if err := buildInto(ctx, module, p.folder, left, progress); err != nil {
			return Binaries{}, err
		}
	}
	return binariesIn(p.folder, p.version), nil
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

// missing are the programs that have not been built. Each is renamed into place
// when it is complete.
func missing(target string, programs []program) []program {
	return slices.DeleteFunc(slices.Clone(programs), func(p program) bool {
		_, err := os.Stat(filepath.Join(target, executable(p.name)))
		return err == nil
	})
}

func binariesIn(dir, version string) Binaries {
	in := func(name string) string { return filepath.Join(dir, executable(name)) }
	return Binaries{
		Etcd:              in(Etcd),
		APIServer:         in(APIServer),
		ControllerManager: in(ControllerManager),
		Kubectl:           in(kubectlName),
		Version:           version,
	}
}

// pathOf is the path of another program that was built into the same folder.
func (b Binaries) pathOf(p program) string {
	return filepath.Join(filepath.Dir(b.APIServer), executable(p.name))
}

func executable(name string) string {
	if runtime.GOOS == "windows" {
		return name + ".exe"
	}
	return name
}

// buildInto builds into a temporary folder and renames what it has built into
// target, so that a killed build leaves nothing that looks complete. All programs
// are built at once, which keeps every core busy while one of them is linked.
func buildInto(ctx context.Context, module locatedModule, target string, programs []program, progress io.Writer) error {
	dir, err := os.MkdirTemp(filepath.Dir(target), "building-*")
	if err != nil {
		return fmt.Errorf("create build folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	build := gobuild.Build{
		Label:  label,
		Dir:    module.dir,
		Flags:  module.flags(),
		Output: dir + string(filepath.Separator),
		Env:    []string{"GOOS=", "GOARCH="}, // what is built runs here
	}
	var names []string
	for _, p := range programs {
		names = append(names, p.name)
		build.Packages = append(build.Packages, p.path)
	}
	build.Name = strings.Join(names, ", ")
	if err := gobuild.Run(ctx, build, progress); err != nil {
		return err
	}
	for _, p := range programs {
		built := filepath.Join(dir, executable(commandName(p.path)))
		if err := os.Rename(built, filepath.Join(target, executable(p.name))); err != nil {
			return fmt.Errorf("put %s in place: %w", p.name, err)
		}
	}
	return nil
}

// commandName is how the go command names the program of a main package: by the
// last part of its path, without a major version.
func commandName(importPath string) string {
	name := path.Base(importPath)
	if major, ok := strings.CutPrefix(name, "v"); ok {
		if _, err := strconv.Atoi(major); err == nil {
			name = path.Base(path.Dir(importPath))
		}
	}
	return name
}

// flags give the programs their version: the API server derives the served APIs from it,
// and would call itself v0.0.0 otherwise. etcd has no such variables, and the linker
// passes over them. containerd is built without drivers that no node uses.
func (m locatedModule) flags() []string {
	if m.folder == runtimes.folder {
		return []string{"-tags", "no_btrfs,no_devmapper,no_zfs", "-ldflags", "-s -w -X github.com/containerd/containerd/v2/version.Version=" + m.version}
	}
	major, rest, _ := strings.Cut(strings.TrimPrefix(m.version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	const variable = " -X k8s.io/component-base/version."
	return []string{"-ldflags", "-s -w" + variable + "gitVersion=" + m.version + variable + "gitMajor=" + major + variable + "gitMinor=" + minor}
}
