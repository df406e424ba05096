package preview

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/input"
)

// loadProposals reads the resources of --with, with the default namespace.
func loadProposals(ctx context.Context, files []string, namespace string) ([]*unstructured.Unstructured, error) {
	if len(files) == 0 {
		return nil, nil
	}
	objects, err := input.LoadResources(ctx, files)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		gvk := o.GroupVersionKind()
		switch gvk {
		case corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Secret"):
		default:
			if gvk.GroupVersion() != v1alpha1.GroupVersion {
				return nil, exit.Usagef("--with=%s: unsupported resource %s %s: use policies, finalizers, modules, and the ConfigMaps and Secrets "+
					"that they name", strings.Join(files, ","), gvk.Kind, o.GetName())
			}
		}
		if o.GetNamespace() == "" && !strings.HasPrefix(gvk.Kind, "Cluster") {
			o.SetNamespace(namespace)
		}
	}
	return objects, nil
}

// withNote returns the note on the resources of --with.
func withNote(objects []*unstructured.Unstructured) string {
	var names []string
	for _, o := range objects {
		name := o.GetName()
		if o.GetNamespace() != "" {
			name = o.GetNamespace() + "/" + name
		}
		names = append(names, o.GetKind()+" "+name)
	}
	return "previewed as if these were applied: " + strings.Join(names, ", ")
}
