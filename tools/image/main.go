//go:build ignore

// Command image makes a container image of commands that are built already,
// one for each architecture, and writes it to a folder in the OCI layout. With
// -push it sends the image to a registry as well. There is no Docker in it:
// the image has the command, certificates of authorities, and nothing else.
//
// Equal files make an equal image. Run it from the root module.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/gleaner-dev/gleaner/policies/source/oci"
)

const (
	user         = "65532:65532" // a number, so that Kubernetes sees that it is not root
	command      = "gleaner"
	repository   = "https://github.com/gleaner-dev/gleaner"
	certificates = "etc/ssl/certs/ca-certificates.crt" // where Go looks for them
)

// authorities are where systems keep the certificates of authorities.
var authorities = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"}

func main() {
	folder := flag.String("folder", "bin/image", "`folder` that the image is written to; what is there goes")
	version := flag.String("version", "development", "version of the commands, for the labels")
	revision := flag.String("revision", "", "commit of the commands, for the labels")
	push := flag.String("push", "", "`reference` to push the image to, as registry/repository:tag")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: image [flags] COMMAND..., one for each architecture")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, flag.Args(), *folder, *push, describe(*version, *revision)); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		stop()
		os.Exit(1)
	}
}

// describe says what the image is, in the words of the OCI's specification. It stands
// in its labels, which people see, and in annotations, which registries do.
func describe(version, revision string) map[string]string {
	about := map[string]string{
		"org.opencontainers.image.title":         "Gleaner",
		"org.opencontainers.image.description":   "A programmable garbage collector for Kubernetes",
		"org.opencontainers.image.url":           repository,
		"org.opencontainers.image.source":        repository,
		"org.opencontainers.image.documentation": repository + "/tree/main/docs",
		"org.opencontainers.image.licenses":      "Apache-2.0",
		"org.opencontainers.image.vendor":        "The Gleaner authors",
		"org.opencontainers.image.version":       version,
	}
	if revision != "" {
		about["org.opencontainers.image.revision"] = revision
	}
	return about
}

func run(ctx context.Context, commands []string, folder, push string, about map[string]string) error {
	if len(commands) == 0 {
		return errors.New("make image: name commands, one for each architecture")
	}
	trusted, err := readAuthorities()
	if err != nil {
		return err
	}
	images, err := packAll(commands, trusted, about)
	if err != nil {
		return err
	}
	index, err := combine(images, about)
	if err != nil {
		return err
	}
	if err := write(folder, images, index); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	fmt.Printf("%s: %s\n", folder, oci.Digest(index))
	if push == "" {
		return nil
	}
	return send(ctx, push, images, index)
}

func readAuthorities() ([]byte, error) {
	for _, path := range authorities {
		content, err := os.ReadFile(path)
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return content, err
		}
	}
	return nil, fmt.Errorf("read certificates of authorities, without which it would trust no registry: there are none in %s",
		strings.Join(authorities, ", "))
}

// image is what is made of one command.
type image struct {
	oci.Artifact
	platform v1.Platform
}

func packAll(commands []string, trusted []byte, about map[string]string) ([]image, error) {
	var images []image
	seen := map[string]string{}
	for _, path := range commands {
		binary, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		architecture, err := architectureOf(binary)
		if err != nil {
			return nil, fmt.Errorf("make image of %s: %w", path, err)
		}
		if other, ok := seen[architecture]; ok {
			return nil, fmt.Errorf("make image of %s: %s is for %s, too", path, other, architecture)
		}
		seen[architecture] = path
		made, err := pack(binary, trusted, about, v1.Platform{OS: "linux", Architecture: architecture})
		if err != nil {
			return nil, fmt.Errorf("make image of %s: %w", path, err)
		}
		images = append(images, made)
	}
	return images, nil
}

// architectureOf asks the command itself, which can't be mistaken about it.
func architectureOf(binary []byte) (string, error) {
	file, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		return "", fmt.Errorf("not a command for Linux: %w", err)
	}
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP {
			return "", errors.New("it needs libraries, and the image has none: build it with CGO_ENABLED=0")
		}
	}
	switch file.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	default:
		return "", fmt.Errorf("it is for %s: build it for amd64 or arm64", file.Machine)
	}
}

// pack makes an image of a command.
func pack(binary, trusted []byte, about map[string]string, platform v1.Platform) (image, error) {
	config := v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture,
		Created: v1.Time{Time: time.Unix(0, 0).UTC()},
		RootFS:  v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User: user, WorkingDir: "/", Entrypoint: []string{"/" + command},
			Labels: about,
		},
	}
	manifest := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Annotations: about}
	made := image{platform: platform, Artifact: oci.Artifact{MediaType: string(manifest.MediaType)}}

	// The command comes last: it changes with each release, the rest does not.
	for _, f := range []file{{certificates, trusted, 0o644}, {command, binary, 0o755}} {
		plain, packed, err := archive(f)
		if err != nil {
			return image{}, err
		}
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, descriptor("", plain).Digest)
		config.History = append(config.History, v1.History{Created: config.Created, CreatedBy: "tools/image", Comment: f.name})
		manifest.Layers = append(manifest.Layers, descriptor(types.OCILayer, packed))
		made.Blobs = append(made.Blobs, packed)
	}
	described, err := json.Marshal(config)
	if err != nil {
		return image{}, err
	}
	manifest.Config = descriptor(types.OCIConfigJSON, described)
	made.Blobs = append(made.Blobs, described)
	made.Manifest, err = json.Marshal(manifest)
	return made, err
}

// combine makes the index of the images, from which each node takes its own.
func combine(images []image, about map[string]string) ([]byte, error) {
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Annotations: about}
	for _, i := range images {
		d := descriptor(types.MediaType(i.MediaType), i.Manifest)
		d.Platform = &i.platform
		index.Manifests = append(index.Manifests, d)
	}
	return json.Marshal(index)
}

func descriptor(kind types.MediaType, data []byte) v1.Descriptor {
	_, hex, _ := strings.Cut(oci.Digest(data), ":")
	return v1.Descriptor{MediaType: kind, Size: int64(len(data)), Digest: v1.Hash{Algorithm: "sha256", Hex: hex}}
}

type file struct {
	name    string
	content []byte
	mode    int64
}

// archive makes a tar of one file and the folders above it, all root's and of
// the same time, and compresses that.
func archive(f file) (plain, packed []byte, err error) {
	var tape, zipped bytes.Buffer
	writer := tar.NewWriter(&tape)
	for i, r := range f.name {
		if r == '/' {
			err = errors.Join(err, writer.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: f.name[:i+1], Mode: 0o755}))
		}
	}
	err = errors.Join(err, writer.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content))}))
	_, wrote := writer.Write(f.content)
	err = errors.Join(err, wrote, writer.Close())

	squeeze := gzip.NewWriter(&zipped)
	_, squeezed := squeeze.Write(tape.Bytes())
	err = errors.Join(err, squeezed, squeeze.Close())
	return tape.Bytes(), zipped.Bytes(), err
}

// write makes a folder in the OCI layout.
func write(folder string, images []image, index []byte) error {
	blobs := filepath.Join(folder, "blobs", "sha256")
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(blobs, 0o755)); err != nil {
		return err
	}
	contents := [][]byte{index}
	for _, i := range images {
		contents = append(append(contents, i.Manifest), i.Blobs...)
	}
	for _, content := range contents {
		if err := os.WriteFile(filepath.Join(blobs, descriptor("", content).Digest.Hex), content, 0o644); err != nil {
			return err
		}
	}
	root, err := json.Marshal(v1.IndexManifest{
		SchemaVersion: 2, MediaType: types.OCIImageIndex,
		Manifests: []v1.Descriptor{descriptor(types.OCIImageIndex, index)},
	})
	return errors.Join(err,
		os.WriteFile(filepath.Join(folder, "index.json"), root, 0o644),
		os.WriteFile(filepath.Join(folder, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644))
}

// send pushes the images, and last what points to them.
func send(ctx context.Context, reference string, images []image, index []byte) error {
	to, err := oci.ParseReference(reference)
	if err != nil {
		return fmt.Errorf("push to %s: %w", reference, err)
	}
	if to.Tag == "" || to.Digest != "" {
		return fmt.Errorf("push to %s: name the image by a tag, as registry/repository:tag", reference)
	}
	credential, err := oci.UserCredential(ctx, to)
	if err != nil {
		return err
	}
	repository := oci.NewRepository(http.DefaultClient, to, credential)
	for _, i := range images {
		if _, err := repository.Push(ctx, i.Artifact, oci.Digest(i.Manifest)); err != nil {
			return fmt.Errorf("push to %s: %w", reference, err)
		}
	}
	digest, err := repository.Push(ctx, oci.Artifact{Manifest: index, MediaType: string(types.OCIImageIndex)}, to.Tag)
	if err != nil {
		return fmt.Errorf("push to %s: %w", reference, err)
	}
	fmt.Println(to.ByDigest(digest))
	return nil
}
