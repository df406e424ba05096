package deploy

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/gleaner-dev/gleaner/policies/source/oci"
	"github.com/gleaner-dev/gleaner/test/program"
)

const (
	maxManifestSize = 1 << 20 // bytes
	revision        = "0123456789abcdef0123456789abcdef01234567"
)

// otherArchitecture is an architecture different from this machine's.
var otherArchitecture = map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]

// buildImage runs tools/image.
func buildImage(t *testing.T, args ...string) (string, error) {
	t.Helper()
	if err := program.ReadFiles("../../tools/image"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"run", "../../tools/image/main.go", "-version", version, "-revision", revision}, args...)...)
	cmd.Env = append(os.Environ(), "DOCKER_CONFIG="+t.TempDir()) // without credentials
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", errors.New(stderr.String())
	}
	return stdout.String(), nil
}

// buildForeignBinary builds a small command for another architecture,
// which is faster than building Gleaner.
func buildForeignBinary(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	source, path := filepath.Join(folder, "main.go"), filepath.Join(folder, "foreign")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := build(t.Context(), path, source, "GOOS=linux", "GOARCH="+otherArchitecture); err != nil {
		t.Fatal(err)
	}
	return path
}

// crossBuild builds Gleaner for another architecture.
func crossBuild(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gleaner")
	if err := build(t.Context(), path, "../../cmd/gleaner", "GOOS=linux", "GOARCH="+otherArchitecture); err != nil {
		t.Fatal(err)
	}
	return path
}

// pulledImage is an image pulled from a registry.
type pulledImage struct {
	*testing.T
	from *oci.Repository
}

func (p pulledImage) blob(d v1.Descriptor, into any) []byte {
	p.Helper()
	data, err := p.from.Blob(p.Context(), d.Digest.String(), d.Size)
	if err == nil && into != nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		p.Fatal(err)
	}
	return data
}

func (p pulledImage) manifest(name string, into any) (digest string) {
	p.Helper()
	data, digest, err := p.from.Manifest(p.Context(), name, maxManifestSize)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		p.Fatal(err)
	}
	return digest
}

// unpackLayer unpacks a layer into a folder, and returns the names of its files. Its content must
// have the digest in the config.
func (p pulledImage) unpackLayer(folder string, d v1.Descriptor, diffID v1.Hash) []string {
	p.Helper()
	packed, err := gzip.NewReader(bytes.NewReader(p.blob(d, nil)))
	if err != nil {
		p.Fatal(err)
	}
	plain, err := io.ReadAll(packed)
	if err != nil {
		p.Fatal(err)
	}
	if got := oci.Digest(plain); got != diffID.String() {
		p.Errorf("layer has diff ID %s, want %s as in the config", got, diffID)
	}
	var names []string
	for reader := tar.NewReader(bytes.NewReader(plain)); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			p.Fatal(err)
		}
		names = append(names, header.Name)
		path := filepath.Join(folder, filepath.FromSlash(header.Name))
		if header.Uid != 0 || header.Gid != 0 || header.Mode&0o022 != 0 {
			p.Errorf("%s has owner %d and mode %o: writable for others than root", header.Name, header.Uid, header.Mode)
		}
		switch header.Typeflag {
		case tar.TypeDir:
			if err := os.MkdirAll(path, fs.FileMode(header.Mode)); err != nil {
				p.Fatal(err)
			}
		case tar.TypeReg:
			unpack(p.T, path, reader, fs.FileMode(header.Mode))
		default:
			p.Errorf("%s is neither a file nor a folder", header.Name)
		}
	}
}

func unpack(t *testing.T, path string, from io.Reader, mode fs.FileMode) {
	t.Helper()
	content, err := io.ReadAll(from)
	if err == nil {
		err = os.WriteFile(path, content, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// unpackImage unpacks the image for an architecture into a folder.
func (p pulledImage) unpackImage(index v1.IndexManifest, architecture string) (root string, manifest v1.Manifest, config v1.ConfigFile) {
	p.Helper()
	at := slices.IndexFunc(index.Manifests, func(d v1.Descriptor) bool { return d.Platform.String() == "linux/"+architecture })
	if at < 0 {
		p.Fatalf("no image for %s", architecture)
	}
	p.manifest(index.Manifests[at].Digest.String(), &manifest)
	p.blob(manifest.Config, &config)
	if config.OS != "linux" || config.Architecture != architecture || len(config.RootFS.DiffIDs) != len(manifest.Layers) {
		p.Fatalf("config is %+v", config)
	}
	root = filepath.Join(p.TempDir(), "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		p.Fatal(err)
	}
	var names []string
	for i, layer := range manifest.Layers {
		names = append(names, p.unpackLayer(root, layer, config.RootFS.DiffIDs[i])...)
	}
	if diff := cmp.Diff([]string{"etc/", "etc/ssl/", "etc/ssl/certs/", "etc/ssl/certs/ca-certificates.crt", "gleaner"}, names); diff != "" {
		p.Errorf("files (-want +got):\n%s", diff)
	}
	command, err := elf.Open(filepath.Join(root, "gleaner"))
	if err != nil {
		p.Fatal(err)
	}
	defer command.Close()
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[architecture]; command.Machine != want {
		p.Errorf("command is for %s", command.Machine)
	}
	return root, manifest, config
}

func TestImage_IsPulledFromARegistryAndCollects(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the image is for Linux")
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	reference := strings.TrimPrefix(server.URL, "http://") + "/gleaner/gleaner:" + version
	out, err := buildImage(t, "-folder", filepath.Join(t.TempDir(), "image"), "-push", reference, gleaner.Path(t), crossBuild(t))
	if err != nil {
		t.Fatal(err)
	}
	to, err := oci.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	p := pulledImage{t, oci.NewRepository(http.DefaultClient, to, oci.Credential{})}
	var index v1.IndexManifest
	digest := p.manifest(version, &index)
	if want := "@" + digest + "\n"; !strings.HasSuffix(out, want) {
		t.Errorf("output does not end in %s:\n%s", want, out)
	}
	if len(index.Manifests) != 2 {
		t.Errorf("image has %d architectures", len(index.Manifests))
	}
	foreign, foreignManifest, foreignConfig := p.unpackImage(index, otherArchitecture)
	root, manifest, config := p.unpackImage(index, runtime.GOARCH)

	t.Run("is the same for both architectures except the command", func(t *testing.T) {
		if diff := cmp.Diff(config.Config, foreignConfig.Config); diff != "" {
			t.Errorf("configs:\n%s", diff)
		}
		if diff := cmp.Diff(manifest.Annotations, foreignManifest.Annotations); diff != "" {
			t.Errorf("annotations:\n%s", diff)
		}
		if manifest.Layers[0].Digest != foreignManifest.Layers[0].Digest || manifest.Layers[1].Digest == foreignManifest.Layers[1].Digest {
			t.Errorf("layers %v and %v", manifest.Layers, foreignManifest.Layers)
		}
		own, theirs := sourcesOf(t, root), sourcesOf(t, foreign)
		if diff := cmp.Diff(own, theirs); diff != "" {
			t.Errorf("commands have different sources:\n%s", diff)
		}
	})
	t.Run("has labels and annotations", func(t *testing.T) {
		for name, about := range map[string]map[string]string{
			"labels": config.Config.Labels, "annotations": manifest.Annotations, "annotations of the index": index.Annotations,
		} {
			for key, want := range map[string]string{"version": version, "revision": revision, "licenses": "Apache-2.0", "title": "Gleaner"} {
				if got := about["org.opencontainers.image."+key]; got != want {
					t.Errorf("%s: %s is %q", name, key, got)
				}
			}
		}
	})
	t.Run("runs as a non-root user", func(t *testing.T) {
		if config.Config.User != "65532:65532" {
			t.Errorf("user is %q", config.Config.User)
		}
		if diff := cmp.Diff([]string{"/gleaner"}, config.Config.Entrypoint); diff != "" {
			t.Errorf("entrypoint (-want +got):\n%s", diff)
		}
		output, err := exec.CommandContext(t.Context(), filepath.Join(root, "gleaner"), "version").CombinedOutput()
		if err != nil || !strings.Contains(string(output), version) {
			t.Errorf("gleaner version printed %q, %v", output, err)
		}
	})
	t.Run("collects, and writes only to its volumes", func(t *testing.T) {
		if !canChroot {
			t.Skip("chroot requires root")
		}
		cluster := sharedInstallation(t)
		before := filesOf(t, root)
		o := startPod(t, newPod(t, cluster, root, canChroot))
		o.waitUntilReady("/healthz", "/readyz")
		w := newEnv(t, cluster.RESTConfig())
		w.expectCollection("image")
		o.stop()
		if diff := cmp.Diff(before, filesOf(t, root)); diff != "" {
			t.Errorf("files before and after:\n%s", diff)
		}
	})
}

// sourcesOf returns the package and the modules that the command in an image was built from.
func sourcesOf(t *testing.T, root string) (sources []string) {
	t.Helper()
	info, err := buildinfo.ReadFile(filepath.Join(root, "gleaner"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Path != "github.com/gleaner-dev/gleaner/cmd/gleaner" {
		t.Errorf("command is %s", info.Path)
	}
	sources = append(sources, info.GoVersion, info.Path)
	for _, m := range info.Deps {
		sources = append(sources, m.Path+" "+m.Version+" "+m.Sum)
	}
	return sources
}

// filesOf returns the names of the files in a root, except those that a kubelet adds.
func filesOf(t *testing.T, root string) (names []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, entry fs.DirEntry, err error) error {
		if path == "var" {
			return fs.SkipDir
		}
		if err == nil && !entry.IsDir() {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// The command is built in a different folder each time.
func TestImage_IsReproducible(t *testing.T) {
	folder := t.TempDir()
	var contents [2]map[string]bool
	for i := range contents {
		if _, err := buildImage(t, "-folder", folder, buildForeignBinary(t)); err != nil {
			t.Fatal(err)
		}
		contents[i] = layoutOf(t, folder)
	}
	if diff := cmp.Diff(contents[0], contents[1]); diff != "" {
		t.Errorf("first and second layout:\n%s", diff)
	}
}

// layoutOf returns the names and digests of the files of an OCI layout.
func layoutOf(t *testing.T, folder string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		digest := oci.Digest(content)
		if filepath.Base(filepath.Dir(path)) == "sha256" && digest != "sha256:"+entry.Name() {
			t.Errorf("%s has the digest %s", entry.Name(), digest)
		}
		found[entry.Name()+" "+digest] = true
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 7 { // two layers, config, manifest, index, index.json, oci-layout
		t.Errorf("found %v", found)
	}
	return found
}

func TestImage_RefusesUnusableCommands(t *testing.T) {
	command := buildForeignBinary(t)
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	for claim, tc := range map[string]struct {
		commands []string
		says     string
	}{
		"nothing":                          {nil, "name commands"},
		"a script":                         {[]string{script}, "not a command for Linux"},
		"a command that needs libraries":   {[]string{shell}, "build it with CGO_ENABLED=0"},
		"two commands of one architecture": {[]string{command, command}, "is for " + otherArchitecture + ", too"},
	} {
		t.Run(claim, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "image")
			_, err := buildImage(t, append([]string{"-folder", folder}, tc.commands...)...)
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got error %v", err)
			}
			if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("output was written: %v", err)
			}
		})
	}
}
