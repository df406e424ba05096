// Package release removes finalizers from objects without the operator: after it was
// uninstalled, or when an object must be deleted now. It removes Gleaner's own finalizers,
// or others by name.
//
// It deletes nothing but the operator's admission objects, which would add the finalizers
// again. An object that is being deleted and has no other finalizer disappears once they
// are removed, and Kubernetes then handles its dependents as usual. The caller decides
// which finalizers to remove from which objects.
package release

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
)

// A HeldObject is an object with at least one matching finalizer.
type HeldObject struct {
	Resource        schema.GroupVersionResource
	Kind            string
	Namespace       string
	Name            string
	UID             types.UID
	Terminating     bool
	Finalizers      []string // matching
	OtherFinalizers []string // not matching
}

// String returns resource.group/name, as accepted by kubectl.
func (h HeldObject) String() string {
	return h.Resource.GroupResource().String() + "/" + h.Name
}

// A Releaser finds and removes finalizers. The clients are required.
type Releaser struct {
	Metadata  metadata.Interface
	Discovery discovery.DiscoveryInterface
	Leases    coordination.LeasesGetter

	// KeepTerminating makes it an error to release an object that is being deleted, as read right before the write.
	KeepTerminating bool
}

// errTerminating is the error of an object that KeepTerminating keeps.
var errTerminating = errors.New("it is being deleted, and waits for a policy or for the archive")

// Selection selects finalizers and objects. The zero Where selects Gleaner's own finalizers on
// all objects.
type Selection struct {
	Finalizers     []string                        // empty: Gleaner's own
	SelectResource func(schema.GroupResource) bool // nil: all resources
	Namespace      string                          // "": all namespaces and cluster-scoped objects
	Labels         string                          // a label selector
	Name           string
	Progress       func(done, of int) // called with the number of types listed so far; may be nil
}

// has reports whether a finalizer is selected.
func (w Selection) has(finalizer string) bool {
	if len(w.Finalizers) == 0 {
		_, _, archive := v1alpha1.ParseArchiveFinalizer(finalizer)
		return finalizer == graph.Hold || finalizer == v1alpha1.InUseFinalizer || archive
	}
	return slices.Contains(w.Finalizers, finalizer)
}

// Find lists the objects that have a selected finalizer. If some types can't be listed, it
// returns an error together with the objects of the others.
func (r *Releaser) Find(ctx context.Context, where Selection) ([]HeldObject, error) {
	types, err := r.types(where)
	var all []HeldObject
	for i, t := range types {
		if where.Progress != nil {
			where.Progress(i, len(types))
		}
		if where.Namespace != "" && !t.namespaced {
			continue
		}
		held, listErr := r.list(ctx, t, where)
		all = append(all, held...)
		err = errors.Join(err, listErr)
	}
	return all, err
}

type resource struct {
	schema.GroupVersionResource
	kind       string
	namespaced bool
}

// types returns the types that can be listed and patched. For a CustomResourceDefinition
// that is being deleted, discovery omits the verb patch, although objects can be patched
// and the deletion waits for their finalizers: there, delete counts as well.
func (r *Releaser) types(where Selection) ([]resource, error) {
	lists, err := r.Discovery.ServerPreferredResources()
	if err != nil {
		err = fmt.Errorf("discover types: %w", err)
	}
	var found []resource
	for _, list := range lists {
		gv, parseErr := schema.ParseGroupVersion(list.GroupVersion)
		if parseErr != nil {
			continue
		}
		for _, t := range list.APIResources {
			patched := slices.Contains(t.Verbs, "patch") || slices.Contains(t.Verbs, "delete")
			usable := slices.Contains(t.Verbs, "list") && patched && !strings.Contains(t.Name, "/")
			gvr := gv.WithResource(t.Name)
			if usable && (where.SelectResource == nil || where.SelectResource(gvr.GroupResource())) {
				found = append(found, resource{gvr, t.Kind, t.Namespaced})
			}
		}
	}
	return found, err
}

func (r *Releaser) list(ctx context.Context, t resource, where Selection) ([]HeldObject, error) {
	client := r.Metadata.Resource(t.GroupVersionResource).Namespace(where.Namespace)
	options := metav1.ListOptions{LabelSelector: where.Labels}
	if where.Name != "" {
		options.FieldSelector = "metadata.name=" + where.Name
	}
	var found []HeldObject
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) })
	err := list.EachListItem(ctx, options, func(item runtime.Object) error {
		o, ok := item.(*metav1.PartialObjectMetadata)
		if !ok {
			return fmt.Errorf("listed a %T", item)
		}
		if !slices.ContainsFunc(o.Finalizers, where.has) {
			return nil
		}
		found = append(found, HeldObject{
			Resource: t.GroupVersionResource, Kind: t.kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID,
			Terminating:     o.DeletionTimestamp != nil,
			Finalizers:      slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return !where.has(f) }),
			OtherFinalizers: slices.DeleteFunc(slices.Clone(o.Finalizers), where.has),
		})
		return nil
	})
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return found, nil // not served any more, or not listable
	}
	if err != nil {
		return found, fmt.Errorf("list %s: %w", t.GroupResource(), err)
	}
	return found, nil
}

// Release removes the matching finalizers and their state from one object. It reports
// whether the object was changed.
func (r *Releaser) Release(ctx context.Context, h HeldObject) (released bool, err error) {
	client := r.Metadata.Resource(h.Resource).Namespace(h.Namespace)
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		o, err := client.Get(ctx, h.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && (o.UID != h.UID || !slices.ContainsFunc(o.Finalizers, h.has)) {
			return nil
		}
		if err != nil {
			return err
		}
		if r.KeepTerminating && o.DeletionTimestamp != nil {
			return errTerminating
		}
		body, err := json.Marshal(map[string]any{"metadata": h.metadataPatch(o)})
		if err != nil {
			return err
		}
		if _, err = client.Patch(ctx, h.Name, types.MergePatchType, body, metav1.PatchOptions{}); err == nil {
			released = true
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("release %s in namespace %q: %w", h, h.Namespace, err)
	}
	return released, nil
}

func (h HeldObject) has(finalizer string) bool { return slices.Contains(h.Finalizers, finalizer) }

// metadataPatch returns a patch of the metadata that removes the finalizers, with the UID and
// resourceVersion as preconditions.
func (h HeldObject) metadataPatch(o *metav1.PartialObjectMetadata) map[string]any {
	meta := map[string]any{
		"uid": o.UID, "resourceVersion": o.ResourceVersion, "finalizers": slices.DeleteFunc(slices.Clone(o.Finalizers), h.has),
	}
	if !objectstate.Supported(h.Resource.Group) {
		return meta
	}
	annotations := map[string]*string{}
	if _, remembers := o.Annotations[objectstate.Annotation]; remembers && h.has(graph.Hold) {
		annotations[objectstate.Annotation] = nil
	}
	if text, remembers := o.Annotations[objectstate.FinalizersAnnotation]; remembers {
		annotations[objectstate.FinalizersAnnotation] = objectstate.RemoveFinalizers(text, h.has)
	}
	if _, requested := o.Annotations[objectstate.GracePeriodAnnotation]; requested && h.has(graph.Hold) {
		annotations[objectstate.GracePeriodAnnotation] = nil
	}
	if len(annotations) != 0 {
		meta["annotations"] = annotations
	}
	return meta
}
