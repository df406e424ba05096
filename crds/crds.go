// Package crds holds Gleaner's CustomResourceDefinitions: the manifests
// that controller-gen generates from the Go types in v1alpha1. It applies
// nothing.
package crds

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:embed manifests/gleaner.dev_*.yaml manifests/*/gleaner.dev_*.yaml
var manifests embed.FS

const manifestDir = "manifests"

// Definitions reads the embedded manifests, in the order of their names. They are the
// caller's.
func Definitions() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var list []*apiextensionsv1.CustomResourceDefinition
	err := fs.WalkDir(manifests, manifestDir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := manifests.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read manifest: %w", err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, definition); err != nil {
			return fmt.Errorf("parse manifest %s: %w", file, err)
		}
		list = append(list, definition)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read definitions: %w", err)
	}
	slices.SortFunc(list, func(a, b *apiextensionsv1.CustomResourceDefinition) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Component returns what installs a definition, by its name: a kustomize component in
// config/components, or "node" for config/node; "" if every installation has it.
func Component(definition string) string {
	plural, group, _ := strings.Cut(definition, ".")
	found, err := fs.Glob(manifests, manifestDir+"/*/"+group+"_"+plural+".yaml")
	if err != nil || len(found) == 0 {
		return ""
	}
	return path.Base(path.Dir(found[0]))
}
