package imagereview

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/follow"
	"github.com/gleaner-dev/gleaner/operator/noderetention"
)

const (
	// freshFor is how long the workloads of the cluster are taken as read, for all nodes.
	freshFor = 30 * time.Second

	// listTimeout limits a read. It can take longer than an evaluation: then the next attempt has the result.
	listTimeout = 20 * time.Second

	// maxEntries bounds the images and workloads that are kept: those beyond are not passed to policies.
	maxEntries = 200_000
)

// templates are where the specs of Pods are, by kind.
var templates = map[schema.GroupKind][]string{
	{Group: "apps", Kind: "Deployment"}:  {"spec", "template", "spec"},
	{Group: "apps", Kind: "StatefulSet"}: {"spec", "template", "spec"},
	{Group: "apps", Kind: "DaemonSet"}:   {"spec", "template", "spec"},
	{Group: "apps", Kind: "ReplicaSet"}:  {"spec", "template", "spec"},
	{Group: "batch", Kind: "Job"}:        {"spec", "template", "spec"},
	{Group: "batch", Kind: "CronJob"}:    {"spec", "jobTemplate", "spec", "template", "spec"},
	{Kind: "ReplicationController"}:      {"spec", "template", "spec"},
}

// workloads are the objects of the cluster that have images in the templates of their Pods. The zero value has not been read.
type workloads struct {
	lister follow.Lister
	types  func() *catalog.Catalog
	now    func() time.Time

	mu     sync.Mutex // covers what follows, and is held during a read
	read   time.Time
	images map[string][]hostabi.Workload // by each form of a name
}

// of returns the workloads that have an image.
func (w *workloads) of(ctx context.Context, image hostabi.Image) ([]hostabi.Workload, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now().Sub(w.read) > freshFor {
		if err := w.list(ctx); err != nil {
			return nil, err
		}
	}
	found, seen := []hostabi.Workload{}, map[hostabi.Workload]bool{}
	for _, name := range append([]string{image.ID}, image.Names...) {
		for _, form := range noderetention.Forms(name) {
			for _, one := range w.images[form] {
				if !seen[one] && len(found) < hostabi.MaxWorkloads {
					seen[one], found = true, append(found, one)
				}
			}
		}
	}
	return found, nil
}

// list reads the workloads of the cluster. The caller holds mu.
func (w *workloads) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listTimeout)
	defer cancel()
	began, images, entries, types := w.now(), map[string][]hostabi.Workload{}, 0, w.types()
	for kind, path := range templates {
		resource, served := types.Preferred(kind)
		if !served {
			continue
		}
		apiVersion, name := resource.GroupVersionKind().ToAPIVersionAndKind()
		_, err := follow.List(ctx, w.lister, resource, "", func(o *unstructured.Unstructured) {
			if metav1.GetControllerOf(o) != nil {
				return // what has created it has the same images
			}
			one := hostabi.Workload{APIVersion: apiVersion, Kind: name, Namespace: o.GetNamespace(), Name: o.GetName()}
			for form := range formsOf(o, path) {
				if list := images[form]; len(list) < hostabi.MaxWorkloads && entries < maxEntries {
					images[form] = append(list, one)
					entries++
				}
			}
		})
		if err != nil {
			return fmt.Errorf("list the workloads that have an image: %w", err)
		}
	}
	w.read, w.images = began, images
	return nil
}

// formsOf returns all forms of the names of the images in the template of an object.
func formsOf(o *unstructured.Unstructured, path []string) map[string]bool {
	fields, _, _ := unstructured.NestedMap(o.Object, path...)
	var spec corev1.PodSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &spec); err != nil {
		return nil // the API server accepts no such template
	}
	all := map[string]bool{}
	add := func(name string) {
		if name == "" {
			return
		}
		for _, form := range noderetention.Forms(name) {
			all[form] = true
		}
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for _, c := range list {
			add(c.Image)
		}
	}
	for _, v := range spec.Volumes {
		if v.Image != nil {
			add(v.Image.Reference)
		}
	}
	return all
}
