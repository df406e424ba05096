package source

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/gleaner-dev/gleaner/policies/source/oci"
)

// moduleLayers are the media types of layers that are a module, by language. In
// addition to Gleaner's own these are the types that wasm-to-oci and older tools,
// and conftest, push.
var moduleLayers = map[Language][]types.MediaType{
	Wasm: {oci.MediaTypeWasm, "application/vnd.wasm.content.layer.v1+wasm", "application/vnd.module.wasm.content.layer.v1+wasm"},
	Rego: {oci.MediaTypeRego, "application/vnd.cncf.openpolicyagent.policy.layer.v1+rego"},
}

// archiveLayers are the media types of layers that are archives.
var archiveLayers = []types.MediaType{
	types.OCILayer, types.OCIUncompressedLayer, types.DockerLayer, types.DockerUncompressedLayer,
}

// manifest is an image manifest, or an index.
type manifest struct {
	Manifests []v1.Descriptor `json:"manifests"`
	Layers    []v1.Descriptor `json:"layers"`
}

// parseManifest uses the content of the manifest, which has a digest, not the media
// type that the registry reports, which has none.
func parseManifest(data []byte, limits Limits) (manifest, error) {
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return manifest{}, errorf(InvalidArtifact, "its manifest is invalid: %v", err)
	}
	switch {
	case (len(m.Manifests) == 0) == (len(m.Layers) == 0):
		return manifest{}, errorf(InvalidArtifact, "its manifest is neither an image manifest nor an index")
	case len(m.Manifests) > limits.Layers:
		return manifest{}, errorf(TooLarge, "its index has more than %d entries", limits.Layers)
	case len(m.Layers) > limits.Layers:
		return manifest{}, errorf(TooLarge, "it has more than %d layers", limits.Layers)
	}
	for _, d := range slices.Concat(m.Manifests, m.Layers) {
		if d.Digest.Algorithm != "sha256" || d.Size < 0 {
			return manifest{}, errorf(InvalidArtifact, "its manifest contains %q of %d bytes: push it with sha256 digests", d.Digest, d.Size)
		}
	}
	return m, nil
}

func (m manifest) isIndex() bool { return len(m.Manifests) != 0 }

// wasmImage returns the digest of the image for wasm in an index, or of the only
// image.
func (m manifest) wasmImage() (string, error) {
	var images, wasm []v1.Descriptor
	var platforms []string
	for _, d := range m.Manifests {
		if d.Platform != nil && d.Platform.OS == "unknown" {
			continue // an attestation, of which buildx adds one for each image
		}
		images = append(images, d)
		if d.Platform == nil {
			platforms = append(platforms, "unspecified")
			continue
		}
		platforms = append(platforms, d.Platform.OS+"/"+d.Platform.Architecture)
		if d.Platform.Architecture == "wasm" {
			wasm = append(wasm, d)
		}
	}
	// Other platforms are other ABIs of WASI, which are not supported.
	if p1 := slices.DeleteFunc(slices.Clone(wasm), func(d v1.Descriptor) bool { return d.Platform.OS != "wasip1" }); len(p1) != 0 {
		wasm = p1
	}
	if len(wasm) == 0 {
		wasm = images
	}
	if len(wasm) == 1 {
		return wasm[0].Digest.String(), nil
	}
	return "", errorf(InvalidArtifact, "it is an index of %s, and must have exactly one image for wasip1/wasm: "+
		"use the digest of that image", describe(platforms))
}

func describe(s []string) string {
	if len(s) == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%q", strings.Join(s, ", "))
}

// unpacker extracts files from layers.
type unpacker func(Language, []layer, Limits) ([]File, error)

// layers returns the layers to pull: those that are a module or, if there are none,
// all archives.
func (m manifest) layers(language Language, limits Limits) ([]v1.Descriptor, unpacker, error) {
	unpack := unpackArtifact
	chosen := layersOfType(m.Layers, moduleLayers[language])
	if len(chosen) == 0 {
		unpack = unpackImage
		chosen = layersOfType(m.Layers, archiveLayers)
	}
	if len(chosen) == 0 {
		return nil, nil, errorf(InvalidArtifact, "no layer is %[2]s or an archive compressed with gzip; the first has type %[1]q: "+
			"push the module with gleaner module push", m.Layers[0].MediaType, language)
	}
	var total int64
	for _, l := range chosen {
		if l.Size > limits.Download-total {
			return nil, nil, errorf(TooLarge, "its layers are larger than the limit of %d bytes: build it FROM scratch, "+
				"with only the module, or push the module with gleaner module push", limits.Download)
		}
		total += l.Size
	}
	return chosen, unpack, nil
}

func layersOfType(layers []v1.Descriptor, kinds []types.MediaType) []v1.Descriptor {
	var found []v1.Descriptor
	for _, l := range layers {
		if slices.Contains(kinds, l.MediaType) {
			found = append(found, l)
		}
	}
	return found
}
