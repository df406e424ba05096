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

// Layers that are a module as they are, by language. Beside our own types these
// are what wasm-to-oci and older tools, and conftest, push.
var moduleLayers = map[Language][]types.MediaType{
	Wasm: {oci.MediaTypeWasm, "application/vnd.wasm.content.layer.v1+wasm", "application/vnd.module.wasm.content.layer.v1+wasm"},
	Rego: {oci.MediaTypeRego, "application/vnd.cncf.openpolicyagent.policy.layer.v1+rego"},
}

// Layers that are an archive.
var archiveLayers = []types.MediaType{
	types.OCILayer, types.OCIUncompressedLayer, types.DockerLayer, types.DockerUncompressedLayer,
}

// manifest is that of an image, or an index of several.
type manifest struct {
	Manifests []v1.Descriptor `json:"manifests"`
	Layers    []v1.Descriptor `json:"layers"`
}

// parseManifest goes by what is in the manifest, which has a digest, and not by
// what the registry calls it, which has none.
func parseManifest(data []byte, limits Limits) (manifest, error) {
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return manifest{}, fault(BadArtifact, "its manifest makes no sense: %v", err)
	}
	switch {
	case (len(m.Manifests) == 0) == (len(m.Layers) == 0):
		return manifest{}, fault(BadArtifact, "its manifest is neither that of an image nor an index of several")
	case len(m.Manifests) > limits.Layers:
		return manifest{}, fault(TooLarge, "its index has more than %d entries", limits.Layers)
	case len(m.Layers) > limits.Layers:
		return manifest{}, fault(TooLarge, "it has more than %d layers", limits.Layers)
	}
	for _, d := range slices.Concat(m.Manifests, m.Layers) {
		if d.Digest.Algorithm != "sha256" || d.Size < 0 {
			return manifest{}, fault(BadArtifact, "its manifest names %q of %d bytes: push it with digests by sha256", d.Digest, d.Size)
		}
	}
	return m, nil
}

func (m manifest) isIndex() bool { return len(m.Manifests) != 0 }

// choose returns the digest of the image that an index has for wasm, or the only
// image that it has.
func (m manifest) choose() (string, error) {
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
	// There are those for other ABIs of WASI, which we don't have.
	if p1 := slices.DeleteFunc(slices.Clone(wasm), func(d v1.Descriptor) bool { return d.Platform.OS != "wasip1" }); len(p1) != 0 {
		wasm = p1
	}
	if len(wasm) == 0 {
		wasm = images
	}
	if len(wasm) == 1 {
		return wasm[0].Digest.String(), nil
	}
	return "", fault(BadArtifact, "it is an index of %s, and just one image for wasip1/wasm was expected: "+
		"name the one that is meant by its own digest", orNothing(platforms))
}

func orNothing(s []string) string {
	if len(s) == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%q", strings.Join(s, ", "))
}

// unpacker makes files of layers.
type unpacker func(Language, []layer, Limits) ([]File, error)

// layers returns those to pull: the layers that are a module as they are or, if
// there are none, all archives.
func (m manifest) layers(language Language, limits Limits) ([]v1.Descriptor, unpacker, error) {
	unpack := unpackArtifact
	chosen := of(m.Layers, moduleLayers[language])
	if len(chosen) == 0 {
		unpack = unpackImage
		chosen = of(m.Layers, archiveLayers)
	}
	if len(chosen) == 0 {
		return nil, nil, fault(BadArtifact, "none of its layers, of the type %q, is %s or an archive compressed with gzip: "+
			"push the module with gleaner module push", m.Layers[0].MediaType, language)
	}
	var total int64
	for _, l := range chosen {
		if l.Size > limits.Download-total {
			return nil, nil, fault(TooLarge, "its layers are larger than the limit of %d bytes: build it FROM scratch, "+
				"with the module alone, or push the module with gleaner module push", limits.Download)
		}
		total += l.Size
	}
	return chosen, unpack, nil
}

func of(layers []v1.Descriptor, kinds []types.MediaType) []v1.Descriptor {
	var found []v1.Descriptor
	for _, l := range layers {
		if slices.Contains(kinds, l.MediaType) {
			found = append(found, l)
		}
	}
	return found
}
