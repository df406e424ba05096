// Package download fetches the programs of a control plane that others have built: kube-apiserver, etcd and kubectl as envtest's
// archives have them, and kube-controller-manager, which envtest lacks, from the release files of Kubernetes. Checksums are verified:
// of an archive, that in the index; of a release file, the one that is published next to it.
package download

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/tools/setup-envtest/remote"
	"sigs.k8s.io/controller-runtime/tools/setup-envtest/versions"
)

// Usual places.
const (
	DefaultIndex    = "https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml"
	DefaultReleases = "https://dl.k8s.io/release"
)

const (
	answerTimeout = 5 * time.Second  // for the index: without an answer, programs are built
	totalTimeout  = 10 * time.Minute // for everything
	maxArchive    = 512 << 20        // bytes, compressed
	maxProgram    = 512 << 20
	maxChecksum   = 1 << 10
)

const controllerManager = "kube-controller-manager"

var inArchive = []string{"etcd", "kube-apiserver", "kubectl"}

// Source is where programs are downloaded from. The zero value downloads nothing.
type Source struct {
	Index    string // URL of an index of envtest's archives; empty: nothing is downloaded
	Releases string // URL of the release files of Kubernetes; empty: no kube-controller-manager
}

// Fetch downloads the programs of a version of Kubernetes, such as v1.37.2, or of the newest one in the index with the same minor version, into
// a folder, which it creates when they are complete, possibly without kube-controller-manager. It returns their version.
func (s Source) Fetch(ctx context.Context, version, folder string, progress io.Writer) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, totalTimeout)
	defer cancel()
	envtest := &remote.HTTPClient{Log: logr.Discard(), IndexURL: s.Index}
	found, platform, err := find(ctx, envtest, version)
	if err != nil {
		return "", err
	}
	temp, err := os.MkdirTemp(filepath.Dir(folder), "downloading-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	tag := "v" + found.String()
	fmt.Fprintf(progress, "devcluster: downloading etcd, kube-apiserver and kubectl %s\n", tag)
	if err := unpack(ctx, envtest, found, platform, temp); err != nil {
		return "", fmt.Errorf("download envtest's programs %s: %w", tag, err)
	}
	if s.Releases != "" && runtime.GOOS == "linux" { // published for no other system
		fmt.Fprintf(progress, "devcluster: downloading %s %s\n", controllerManager, tag)
		url := strings.Join([]string{strings.TrimSuffix(s.Releases, "/"), tag, "bin", runtime.GOOS, runtime.GOARCH, controllerManager}, "/")
		if err := release(ctx, url, filepath.Join(temp, controllerManager)); err != nil { // it can be built
			fmt.Fprintf(progress, "devcluster: without %s: %v\n", controllerManager, err)
			err = os.Remove(filepath.Join(temp, controllerManager))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return "", err
			}
		}
	}
	if err := os.WriteFile(filepath.Join(temp, versionFile), []byte(tag), 0o600); err != nil {
		return "", err
	}
	if err := os.Rename(temp, folder); err != nil {
		return "", fmt.Errorf("put programs in place: %w", err)
	}
	return tag, nil
}

const versionFile = "VERSION"

// VersionIn returns the version of the programs in a folder that Fetch has created; "" if there are none.
func VersionIn(folder string) string {
	text, err := os.ReadFile(filepath.Join(folder, versionFile))
	if err != nil {
		return ""
	}
	return string(text)
}

// find returns the version, or else the newest one with its minor version, and the archive for this machine.
func find(ctx context.Context, envtest remote.Client, version string) (versions.Concrete, versions.PlatformItem, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	wanted, err := parse(version)
	if err != nil {
		return versions.Concrete{}, versions.PlatformItem{}, err
	}
	sets, err := envtest.ListVersions(ctx) // the newest first
	if err != nil {
		return versions.Concrete{}, versions.PlatformItem{}, fmt.Errorf("read the index of envtest: %w", err)
	}
	slices.SortStableFunc(sets, func(a, b versions.Set) int {
		return rank(b.Version, wanted) - rank(a.Version, wanted)
	})
	here := versions.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}
	for _, set := range sets {
		if rank(set.Version, wanted) == 0 {
			break
		}
		for _, p := range set.Platforms {
			if p.Platform == here && p.Hash != nil && p.Value != "" { // unverified programs are not used
				return set.Version, p, nil
			}
		}
	}
	return versions.Concrete{}, versions.PlatformItem{}, fmt.Errorf("the index of envtest has no programs of Kubernetes 1.%d for %s", wanted.Minor, here)
}

// rank is 2 for the version itself, 1 for the same minor version, and 0 for others.
func rank(v, wanted versions.Concrete) int {
	switch {
	case v == wanted:
		return 2
	case v.Major == wanted.Major && v.Minor == wanted.Minor:
		return 1
	default:
		return 0
	}
}

func parse(version string) (versions.Concrete, error) {
	spec, err := versions.FromExpr(strings.TrimPrefix(version, "v"))
	if err == nil {
		if c := spec.AsConcrete(); c != nil {
			return *c, nil
		}
	}
	return versions.Concrete{}, fmt.Errorf("version %q: write it as v1.37.2", version)
}

// unpack downloads an archive, which the client verifies, and writes its programs into a folder.
func unpack(ctx context.Context, envtest remote.Client, version versions.Concrete, platform versions.PlatformItem, folder string) error {
	archive, err := os.CreateTemp(folder, "archive-")
	if err != nil {
		return err
	}
	defer func() {
		_ = archive.Close()
		_ = os.Remove(archive.Name())
	}()
	if err := envtest.GetVersion(ctx, version, platform, &limited{archive, maxArchive}); err != nil {
		return err
	}
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return err
	}
	unzipped, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	left := slices.Clone(inArchive)
	for files := tar.NewReader(unzipped); len(left) != 0; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("the archive has no %s", strings.Join(left, ", "))
		}
		if err != nil {
			return err
		}
		name := path.Base(header.Name)
		if header.Typeflag != tar.TypeReg || !slices.Contains(left, name) {
			continue
		}
		left = slices.DeleteFunc(left, func(n string) bool { return n == name })
		if err := write(filepath.Join(folder, name), files); err != nil {
			return err
		}
	}
	return nil
}

// release downloads a release file, and compares it with the checksum next to it.
func release(ctx context.Context, url, target string) error {
	var sum bytes.Buffer
	if err := get(ctx, url+".sha256", &limited{&sum, maxChecksum}); err != nil {
		return err
	}
	hash := sha256.New()
	reader, writer := io.Pipe()
	go func() { writer.CloseWithError(get(ctx, url, writer)) }()
	if err := write(target, io.TeeReader(reader, hash)); err != nil {
		_ = reader.CloseWithError(err)
		return err
	}
	published, _, _ := strings.Cut(strings.TrimSpace(sum.String()), " ")
	if computed := hex.EncodeToString(hash.Sum(nil)); computed != published {
		return fmt.Errorf("checksum of %s is %s, and the published one is %.64q", url, computed, published)
	}
	return nil
}

func get(ctx context.Context, url string, to io.Writer) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	_, err = io.Copy(to, response.Body)
	return err
}

// write writes a program.
func write(target string, from io.Reader) (err error) {
	file, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = io.Copy(&limited{file, maxProgram}, from)
	return err
}

// limited fails when more is written than is left.
type limited struct {
	to   io.Writer
	left int64
}

func (l *limited) Write(p []byte) (int, error) {
	if int64(len(p)) > l.left {
		return 0, errors.New("it is too large")
	}
	l.left -= int64(len(p))
	return l.to.Write(p)
}
