package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// overlays are the folders in config that are released, by the names of their files.
var overlays = map[string]string{
	"install.yaml":              "default",
	"install-primary.yaml":      "primary",
	"install-cert-manager.yaml": "cert-manager",
	"install-dev.yaml":          "dev",
	"install-node.yaml":         "node",
	"install-ui.yaml":           "ui",
	"tenants.yaml":              "tenants",
}

// imageDigest returns the digest of the image's index, which is that of all its platforms.
func (r *release) imageDigest() (string, error) {
	path := filepath.Join(r.image, "index.json")
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the image: %w", err)
	}
	var layout struct {
		Manifests []struct {
			Digest string `json:"digest"`
		} `json:"manifests"`
	}
	if err := json.Unmarshal(data, &layout); err != nil {
		return "", fmt.Errorf("read the image: %s: %w", path, err)
	}
	if len(layout.Manifests) != 1 || layout.Manifests[0].Digest == "" {
		return "", fmt.Errorf("read the image: %s has %d manifests instead of one index", path, len(layout.Manifests))
	}
	return layout.Manifests[0].Digest, nil
}

// manifests returns the manifests of all overlays. Each has the image by its digest.
func (r *release) manifests(digest string) (map[string][]byte, error) {
	folder, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	if folder, err = filepath.EvalSymlinks(folder); err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for name, of := range overlays {
		text, err := r.overlay(folder, of, digest)
		if err != nil {
			return nil, fmt.Errorf("build config/%s: %w", of, err)
		}
		head := fmt.Sprintf("# Gleaner %s, config/%s. Apply it with: kubectl apply --server-side -f %s\n", r.version, of, name)
		files[name] = append([]byte(head), text...)
	}
	return files, nil
}

// overlay builds an overlay of one in config, as users write it.
func (r *release) overlay(folder, of, digest string) ([]byte, error) {
	base, err := filepath.Abs(filepath.Join(r.root, "config", of))
	if err != nil {
		return nil, err
	}
	if base, err = filepath.Rel(folder, base); err != nil {
		return nil, err
	}
	k := types.Kustomization{
		TypeMeta:  types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind},
		Resources: []string{base}, Images: []types.Image{{Name: defaultImage, NewName: r.registry, Digest: digest}},
	}
	text, err := yaml.Marshal(k)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), text, 0o600); err != nil {
		return nil, err
	}
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return nil, err
	}
	return objects.AsYaml()
}
