package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/crds/admit"
	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// loadResources reads the objects of files. Gleaner's own are checked, and get their
// defaults, as if they were applied.
func loadResources(ctx context.Context, files []string) ([]*unstructured.Unstructured, error) {
	objects, err := kubectl.Load(files)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if err := admit.Object(ctx, o); err != nil {
			return nil, fmt.Errorf("in %s: %s %s: %s", strings.Join(files, ", "), o.GetKind(), o.GetName(), err.Error()) // not %w: no server has said so
		}
	}
	return objects, nil
}

// proposals reads what is taken as if it were applied, in the namespace if it names none.
func proposals(ctx context.Context, files []string, namespace string) ([]*unstructured.Unstructured, error) {
	if len(files) == 0 {
		return nil, nil
	}
	objects, err := loadResources(ctx, files)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		gvk := o.GroupVersionKind()
		switch gvk {
		case corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Secret"):
		default:
			if gvk.GroupVersion() != v1alpha1.GroupVersion {
				return nil, kubectl.Usage("--with=%s: policies are not made of %s %s: give policies, finalizers, modules, and the ConfigMaps and Secrets "+
					"that these name", strings.Join(files, ","), gvk.Kind, o.GetName())
			}
		}
		if o.GetNamespace() == "" && !strings.HasPrefix(gvk.Kind, "Cluster") {
			o.SetNamespace(namespace)
		}
	}
	return objects, nil
}

// withNote says what was taken as if it were applied.
func withNote(objects []*unstructured.Unstructured) string {
	var names []string
	for _, o := range objects {
		name := o.GetName()
		if o.GetNamespace() != "" {
			name = o.GetNamespace() + "/" + name
		}
		names = append(names, o.GetKind()+" "+name)
	}
	return "this is told as if these were applied: " + strings.Join(names, ", ")
}
