package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/gleaner-dev/gleaner/devcluster"
)

// RequiredVariable set to "required" makes it an error of tests that this machine can't
// run a node, as in CI. Otherwise they are skipped.
const RequiredVariable = "GLEANER_TEST_NODE"

// packagesNeeded are Debian's and Ubuntu's names.
const packagesNeeded = "runc containernetworking-plugins"

// pluginFolders are where systems keep the CNI plugins.
var pluginFolders = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}

// hiddenFolders are those that a node sees empty.
var hiddenFolders = []string{"/run", "/var/log", "/var/lib/cni", "/var/lib/kubelet"}

// tools are the paths of what a node is made of.
type tools struct{ shell, plugins, containerd, ctr, kubelet string }

// CheckRequirements says what a node needs and this machine does not have, and nil if it has all.
func CheckRequirements() error {
	_, err := findTools()
	return err
}

func findTools() (tools, error) {
	if runtime.GOOS != "linux" {
		return tools{}, errors.New("a node needs Linux")
	}
	found, missing := lookUp()
	var errs []error
	if os.Geteuid() != 0 {
		errs = append(errs, errors.New("a node needs root: run the tests as root"))
	}
	if len(missing) > 0 {
		errs = append(errs, fmt.Errorf("a node needs %s: install them, as by apt-get install %s", strings.Join(missing, ", "), packagesNeeded))
	}
	if len(errs) == 0 { // or it can't be tried
		if err := devcluster.CheckNamespaces(); err != nil {
			errs = append(errs, fmt.Errorf("a node needs the right to mount, which root has outside of containers: %w", err))
		}
	}
	return found, errors.Join(errs...)
}

// Build makes the programs of a node that no system has in the right version, as
// devcluster.Build makes the control plane.
func Build(ctx context.Context, progress io.Writer) error { return new(tools).build(ctx, progress) }

// build builds what no system has in the right version.
func (t *tools) build(ctx context.Context, progress io.Writer) error {
	kubelet, err := devcluster.BuildKubelet(ctx, progress)
	if err != nil {
		return err
	}
	folder, err := devcluster.BuildContainerd(ctx, progress)
	if err != nil {
		return err
	}
	t.kubelet, t.containerd, t.ctr = kubelet, filepath.Join(folder, "containerd"), filepath.Join(folder, "ctr")
	return nil
}

func lookUp() (found tools, missing []string) {
	for program, path := range map[string]*string{
		"sh": &found.shell, "mount": nil, "runc": nil,
	} {
		at, err := exec.LookPath(program)
		if err != nil {
			missing = append(missing, program)
		} else if path != nil {
			*path = at
		}
	}
	slices.Sort(missing)
	at := slices.IndexFunc(pluginFolders, hasPlugins)
	if at < 0 {
		return found, append(missing, "the CNI plugins ptp, host-local and loopback in "+strings.Join(pluginFolders, " or "))
	}
	found.plugins = pluginFolders[at]
	return found, missing
}

func hasPlugins(folder string) bool {
	return !slices.ContainsFunc([]string{"ptp", "host-local", "loopback"}, func(plugin string) bool {
		_, err := os.Stat(filepath.Join(folder, plugin))
		return err != nil
	})
}

// isUnder tells which of these folders a path is below.
func isUnder(path string, folders []string) (string, bool) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	at := slices.IndexFunc(folders, func(f string) bool { return strings.HasPrefix(path, f+"/") })
	if at < 0 {
		return "", false
	}
	return folders[at], true
}

// freeSubnet draws a subnet for Pods from 198.18.0.0/15, which is set aside for tests of
// networks, and which no interface of this machine is in.
func freeSubnet() (netip.Prefix, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("list addresses of this machine: %w", err)
	}
	for range 100 {
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{198, byte(18 + rand.IntN(2)), byte(rand.IntN(256)), 0}), 24)
		taken := slices.ContainsFunc(addresses, func(a net.Addr) bool {
			p, err := netip.ParsePrefix(a.String())
			return err == nil && p.Overlaps(subnet)
		})
		if !taken {
			return subnet, nil
		}
	}
	return netip.Prefix{}, errors.New("find a free subnet in 198.18.0.0/15: all those drawn are in use")
}

// withLog adds the last lines of a log that may not be there.
func withLog(err error, path string) error {
	const most = 3000
	text, readErr := os.ReadFile(path)
	if readErr != nil {
		return err
	}
	return fmt.Errorf("%w\nthe end of %s:\n%s", err, path, text[max(0, len(text)-most):])
}
