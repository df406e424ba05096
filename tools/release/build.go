package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/CycloneDX/cyclonedx-gomod/pkg/generate/bin"
	"github.com/rs/zerolog"
)

// allPlatforms are the platforms that are released.
var allPlatforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// platform is an operating system and an architecture.
type platform struct{ os, arch string }

func platformOf(name string) platform {
	system, arch, _ := strings.Cut(name, "/")
	return platform{system, arch}
}

func (p platform) String() string { return p.os + "/" + p.arch }

// program returns the file name of the program.
func (p platform) program() string {
	if p.os == "windows" {
		return "gleaner.exe"
	}
	return "gleaner"
}

// archive is the program for one platform with its license.
type archive struct {
	platform platform
	name     string
	data     []byte
}

// sbomName returns the file name of the bill of materials of its program.
func (a archive) sbomName() string {
	return strings.TrimSuffix(strings.TrimSuffix(a.name, ".tar.gz"), ".zip") + ".cdx.json"
}

// modified is the time of files in archives, which would differ otherwise: the first that a zip can have.
var modified = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// build builds the program for a platform, and returns its archive and its bill of materials.
func (r *release) build(ctx context.Context, p platform) (archive, []byte, error) {
	folder, err := os.MkdirTemp("", "release-")
	if err != nil {
		return archive{}, nil, err
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, p.program())
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+r.version, "-o", path, r.command)
	build.Dir = r.root
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch)
	if out, err := build.CombinedOutput(); err != nil {
		return archive{}, nil, fmt.Errorf("%w\n%s", err, out)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return archive{}, nil, err
	}
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return archive{}, nil, err
	}
	sbom, err := r.sbom(path)
	if err != nil {
		return archive{}, nil, fmt.Errorf("make the bill of materials: %w", err)
	}
	a := archive{platform: p, name: fmt.Sprintf("gleaner_%s_%s_%s", r.version, p.os, p.arch)}
	pack := tarball
	if p.os == "windows" {
		a.name, pack = a.name+".zip", zipped
	} else {
		a.name += ".tar.gz"
	}
	a.data, err = pack([]entry{{"LICENSE", license, 0o644}, {p.program(), program, 0o755}})
	return a, sbom, err
}

// sbom lists the modules of a program, from what the Go command wrote into it.
func (r *release) sbom(path string) ([]byte, error) {
	generator, err := bin.NewGenerator(path, bin.WithIncludeStdlib(true), bin.WithVersionOverride(r.version), bin.WithLogger(zerolog.Nop()))
	if err != nil {
		return nil, err
	}
	bom, err := generator.Generate()
	if err != nil {
		return nil, err
	}
	if bom.Metadata != nil {
		bom.Metadata.Properties = nil // the path of the file, among others
	}
	var b bytes.Buffer
	err = cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	return b.Bytes(), err
}

// entry is a file in an archive.
type entry struct {
	name string
	data []byte
	mode int64
}

func tarball(entries []entry) ([]byte, error) {
	var b bytes.Buffer
	squeeze, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	w := tar.NewWriter(squeeze)
	for _, e := range entries {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: e.mode, Size: int64(len(e.data)), ModTime: modified}); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	err := errors.Join(w.Close(), squeeze.Close())
	return b.Bytes(), err
}

func zipped(entries []entry) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: modified}
		h.SetMode(os.FileMode(e.mode))
		file, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(file, bytes.NewReader(e.data)); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}
