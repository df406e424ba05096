// Package crds holds Gleaner's CustomResourceDefinitions: the manifests
// that controller-gen generates from the Go types in v1alpha1. It applies
// nothing.
package crds

import (
	"embed"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:embed manifests/gleaner.dev_*.yaml
var manifests embed.FS

const manifestDir = "manifests"

// Definitions reads the embedded manifests, in the order of their file names.
// They are the caller's.
func Definitions() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	entries, err := manifests.ReadDir(manifestDir)
	if err != nil {
		return nil, fmt.Errorf("list manifests: %w", err)
	}
	var list []*apiextensionsv1.CustomResourceDefinition
	for _, entry := range entries {
		data, err := manifests.ReadFile(manifestDir + "/" + entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read manifest: %w", err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, definition); err != nil {
			return nil, fmt.Errorf("parse manifest %s: %w", entry.Name(), err)
		}
		list = append(list, definition)
	}
	return list, nil
}
