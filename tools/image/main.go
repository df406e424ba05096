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
	"context"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	user         = "65532:65532" // a number, so that Kubernetes sees that it is not root
	command      = "gleaner"
	certificates = "etc/ssl/certs/ca-certificates.crt" // where Go looks for them
)

// authorities are where systems keep the certificates of authorities.
var authorities = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("image", flag.ExitOnError)
	folder := flags.String("folder", "bin/image", "`folder` that the image is written to; what is there goes")
	version := flags.String("version", "development", "version of the commands, for the labels")
	push := flags.String("push", "", "`reference` to push the image to, as registry/repository:tag")
	_ = flags.Parse(args) // ends the process
	if flags.NArg() == 0 {
		return errors.New("name the commands to make an image of, one for each architecture")
	}
	index, err := assemble(flags.Args(), *version)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(*folder); err != nil {
		return err
	}
	if _, err := layout.Write(*folder, index); err != nil {
		return fmt.Errorf("write %s: %w", *folder, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s\n", *folder, digest)
	if *push == "" {
		return nil
	}
	return send(ctx, index, *push)
}

func send(ctx context.Context, index v1.ImageIndex, reference string) error {
	to, err := name.ParseReference(reference)
	if err != nil {
		return fmt.Errorf("push: %w", err)
	}
	if err := remote.WriteIndex(to, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("push %s: %w", to, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Println(to.Context().Digest(digest.String()))
	return nil
}

// assemble makes an image for each command, and one index of them.
func assemble(commands []string, version string) (v1.ImageIndex, error) {
	trusted, err := readAuthorities()
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	seen := map[string]string{}
	for _, path := range commands {
		binary, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		architecture, err := architectureOf(binary)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if other, ok := seen[architecture]; ok {
			return nil, fmt.Errorf("%s and %s are both for %s", other, path, architecture)
		}
		seen[architecture] = path
		image, err := pack(binary, trusted, version, architecture)
		if err != nil {
			return nil, fmt.Errorf("make image of %s: %w", path, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: architecture},
		}})
	}
	return index, nil
}

// architectureOf asks the command itself, which can't be mistaken about it.
func architectureOf(binary []byte) (string, error) {
	file, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		return "", fmt.Errorf("not a command for Linux: %w", err)
	}
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP {
			return "", errors.New("needs libraries, and the image has none: build it with CGO_ENABLED=0")
		}
	}
	switch file.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	default:
		return "", fmt.Errorf("made for %s: build it for amd64 or arm64", file.Machine)
	}
}

func readAuthorities() ([]byte, error) {
	for _, path := range authorities {
		content, err := os.ReadFile(path)
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return content, err
		}
	}
	return nil, fmt.Errorf("no certificates of authorities, without which no registry would be trusted, in %s", strings.Join(authorities, ", "))
}

func pack(binary, trusted []byte, version, architecture string) (v1.Image, error) {
	// The command comes last: it changes with each release, the rest does not.
	layers := make([]mutate.Addendum, 2)
	for i, file := range []file{{certificates, trusted, 0o644}, {command, binary, 0o755}} {
		content, err := archive(file)
		if err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(content)), nil
		}, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		layers[i] = mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{CreatedBy: "tools/image: " + file.name}}
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, layers...)
	if err != nil {
		return nil, err
	}
	made, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	made.OS, made.Architecture = "linux", architecture
	made.Config = v1.Config{
		User:       user,
		Entrypoint: []string{"/" + command},
		WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":       "Gleaner",
			"org.opencontainers.image.description": "A programmable garbage collector for Kubernetes",
			"org.opencontainers.image.source":      "https://github.com/gleaner-dev/gleaner",
			"org.opencontainers.image.licenses":    "Apache-2.0",
			"org.opencontainers.image.version":     version,
		},
	}
	return mutate.ConfigFile(image, made)
}

type file struct {
	name    string
	content []byte
	mode    int64
}

// archive makes a tar of one file and the folders above it, all root's, and
// all of the same time.
func archive(f file) ([]byte, error) {
	var out bytes.Buffer
	writer := tar.NewWriter(&out)
	for i, r := range f.name {
		if r != '/' {
			continue
		}
		if err := writer.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: f.name[:i+1], Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	if err := writer.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content))}); err != nil {
		return nil, err
	}
	if _, err := writer.Write(f.content); err != nil {
		return nil, err
	}
	err := writer.Close()
	return out.Bytes(), err
}
