// Command release writes what a release of Gleaner consists of into a folder: an archive for each platform, manifests of the overlays
// with the image pinned by digest, the Helm chart, a manifest for krew, bills of materials, provenance, release notes and checksums.
//
// The same sources, Go version and image make the same files.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// defaultImage is the repository of the published image.
const defaultImage = "ghcr.io/gleaner-dev/gleaner"

// A release is one version of Gleaner and where its files go.
type release struct {
	root      string // of the repository
	folder    string // that is written to
	version   string // such as v1.2.3
	revision  string // the commit; empty if it is not known
	image     string // the folder with the image, in the OCI layout
	registry  string // the image's repository in manifests
	command   string // the package to build
	platforms []platform
}

func main() {
	r := release{command: "./cmd/gleaner"}
	var platforms string
	var check, push bool
	flag.StringVar(&r.root, "root", ".", "`folder` with the sources")
	flag.StringVar(&r.folder, "folder", "dist", "`folder` to write to")
	flag.StringVar(&r.version, "version", "", "`version` to release, such as v1.2.3")
	flag.StringVar(&r.revision, "revision", "", "`commit` that is released")
	flag.StringVar(&r.image, "image", "dist/image", "`folder` with the image in the OCI layout")
	flag.StringVar(&r.registry, "registry", "", "`repository` of the image in manifests; by default "+defaultImage)
	flag.StringVar(&platforms, "platforms", strings.Join(allPlatforms, ","), "`platforms` to build for")
	flag.BoolVar(&check, "check", false, "only see whether the version can be released")
	flag.BoolVar(&push, "push-chart", false, "only push the chart of the release in -folder, to the registry of the image")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := r.parse(platforms)
	switch {
	case err != nil:
	case check:
		_, err = r.notes()
	case push:
		var address string
		if address, err = r.pushChart(); err == nil {
			fmt.Fprintln(os.Stdout, address)
		}
	default:
		err = r.write(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1)
	}
}

// semantic is a version as tags of Go modules have it.
var semantic = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

func (r *release) parse(platforms string) error {
	if !semantic.MatchString(r.version) {
		return fmt.Errorf("version %q: use a semantic version, such as v1.2.3 or v1.2.3-rc.1: make release VERSION=v1.2.3", r.version)
	}
	if r.registry == "" {
		r.registry = defaultImage
	}
	for _, name := range strings.Split(platforms, ",") {
		if !slices.Contains(allPlatforms, name) {
			return fmt.Errorf("platform %q: use one of %s", name, strings.Join(allPlatforms, ", "))
		}
		r.platforms = append(r.platforms, platformOf(name))
	}
	return nil
}

// write writes all files. The image is there already, and stays.
func (r *release) write(ctx context.Context) error {
	notes, err := r.notes()
	if err != nil {
		return err
	}
	digest, err := r.imageDigest()
	if err != nil {
		return err
	}
	files := map[string][]byte{"RELEASE_NOTES.md": notes}
	var archives []archive
	for _, p := range r.platforms {
		fmt.Fprintf(os.Stderr, "release: building for %s\n", p)
		a, sbom, err := r.build(ctx, p)
		if err != nil {
			return fmt.Errorf("build for %s: %w", p, err)
		}
		archives = append(archives, a)
		files[a.name], files[a.sbomName()] = a.data, sbom
	}
	manifests, err := r.manifests(digest)
	if err != nil {
		return err
	}
	for name, data := range manifests {
		files[name] = data
	}
	chart, packaged, err := r.chart(digest)
	if err != nil {
		return err
	}
	files[chart] = packaged
	if files["gleaner.yaml"], err = r.krew(archives); err != nil {
		return err
	}
	sums := checksums(files)
	if files["provenance.json"], err = r.provenance(files, digest); err != nil {
		return err
	}
	files["SHA256SUMS"] = sums
	return r.save(files)
}

// save writes the files, and removes those that an earlier release has listed in its checksums.
func (r *release) save(files map[string][]byte) error {
	if err := os.MkdirAll(r.folder, 0o755); err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(r.folder, "SHA256SUMS"))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	for line := range strings.Lines(string(sums)) {
		_, name, listed := strings.Cut(strings.TrimSpace(line), "  ")
		if !listed || files[name] != nil || name != filepath.Base(name) {
			continue
		}
		if gone := os.Remove(filepath.Join(r.folder, name)); !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	for name, data := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(r.folder, name), data, 0o644))
	}
	if err == nil {
		fmt.Fprintf(os.Stdout, "%s: %d files of %s\n", r.folder, len(files), r.version)
	}
	return err
}
