package oci

import (
	"encoding/json"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Media types of modules. WebAssembly follows the CNCF's "Wasm OCI Artifact
// layout"; there is no such specification for Rego.
const (
	MediaTypeWasm       types.MediaType = "application/wasm"
	MediaTypeWasmConfig types.MediaType = "application/vnd.wasm.config.v0+json"
	MediaTypeRego       types.MediaType = "application/vnd.gleaner.rego.v1"
	mediaTypeEmpty      types.MediaType = "application/vnd.oci.empty.v1+json"
)

// AnnotationTitle is the annotation with the file name of a layer.
const AnnotationTitle = "org.opencontainers.image.title"

// File is a file of an artifact.
type File struct {
	Name string
	Data []byte
}

// Artifact is an artifact to push.
type Artifact struct {
	Manifest  []byte
	MediaType string
	Blobs     [][]byte // the config and the layers
}

// PackWasm packs a module as an artifact. The same module with the same name gives
// the same artifact.
func PackWasm(file File) (Artifact, error) {
	layer, err := descriptor(MediaTypeWasm, file.Data)
	if err != nil {
		return Artifact{}, err
	}
	config, err := json.Marshal(map[string]any{
		"created":      "1970-01-01T00:00:00Z", // readers require one
		"architecture": "wasm",
		"os":           "wasip1",
		"layerDigests": []string{layer.Digest.String()},
	})
	if err != nil {
		return Artifact{}, fmt.Errorf("pack %s: %w", file.Name, err)
	}
	return pack(MediaTypeWasm, MediaTypeWasmConfig, config, []File{file})
}

// PackRego packs Rego files as an artifact.
func PackRego(files []File) (Artifact, error) {
	return pack(MediaTypeRego, mediaTypeEmpty, []byte("{}"), files)
}

func pack(layers, configType types.MediaType, config []byte, files []File) (Artifact, error) {
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}
	if configType == mediaTypeEmpty {
		m.ArtifactType = string(layers) // the config is empty
	}
	a := Artifact{MediaType: string(types.OCIManifestSchema1), Blobs: [][]byte{config}}
	var err error
	if m.Config, err = descriptor(configType, config); err != nil {
		return Artifact{}, err
	}
	for _, f := range files {
		d, err := descriptor(layers, f.Data)
		if err != nil {
			return Artifact{}, err
		}
		d.Annotations = map[string]string{AnnotationTitle: f.Name}
		m.Layers = append(m.Layers, d)
		a.Blobs = append(a.Blobs, f.Data)
	}
	if a.Manifest, err = json.Marshal(m); err != nil {
		return Artifact{}, fmt.Errorf("pack manifest: %w", err)
	}
	return a, nil
}

func descriptor(kind types.MediaType, data []byte) (v1.Descriptor, error) {
	hash, err := v1.NewHash(Digest(data))
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("describe blob: %w", err)
	}
	return v1.Descriptor{MediaType: kind, Size: int64(len(data)), Digest: hash}, nil
}
