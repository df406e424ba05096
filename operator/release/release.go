// Package release takes finalizers off objects, without the operator: when it has
// gone, or when somebody has to have an object go now. They are Gleaner's own, or one
// that is named.
//
// It deletes nothing but the operator's admission objects, which would put them back. An
// object that is being deleted and has no other finalizer
// goes once they are off, and its dependents with it as its other finalizers and
// Kubernetes' own rules say. Which finalizers may be taken off which objects is for
// the caller to say.
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

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/memo"
)

// InUse is the finalizer that keeps a Finalizer or ClusterFinalizer itself until its
// own removal is dealt with, and the module that it asks for as long.
const InUse = "gleaner.dev/in-use"

// Held is an object that has a finalizer that is looked for.
type Held struct {
	Resource    schema.GroupVersionResource
	Kind        string
	Namespace   string
	Name        string
	UID         types.UID
	Terminating bool
	Finalizers  []string // those that are looked for
	Others      []string // those that are not
}

// String returns resource.group/name, as kubectl takes it.
func (h Held) String() string {
	return h.Resource.GroupResource().String() + "/" + h.Name
}

// Releaser finds finalizers and takes them off. All fields are required.
type Releaser struct {
	Metadata  metadata.Interface
	Discovery discovery.DiscoveryInterface
	Leases    coordination.LeasesGetter
}

// Where says what is looked for, and narrows down what is looked through. The zero
// Where is Gleaner's own finalizers on everything.
type Where struct {
	Finalizers []string                        // those that are looked for; none: Gleaner's own
	Select     func(schema.GroupResource) bool // nil: all resources
	Namespace  string                          // "": all, and what is in none
	Labels     string                          // a label selector
	Name       string
	Listed     func(done, of int) // is told how many types have been looked through; may be nil
}

// has reports whether a finalizer is looked for.
func (w Where) has(finalizer string) bool {
	if len(w.Finalizers) == 0 {
		return finalizer == graph.Hold || finalizer == InUse
	}
	return slices.Contains(w.Finalizers, finalizer)
}

// Find lists the objects that have what is looked for. An error comes with what was found
// nevertheless: some types may not be there to be listed.
func (r *Releaser) Find(ctx context.Context, where Where) ([]Held, error) {
	types, err := r.types(where)
	var all []Held
	for i, t := range types {
		if where.Listed != nil {
			where.Listed(i, len(types))
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

// types finds the types whose finalizers can be found and taken off: those that can
// be listed and patched. Of a CustomResourceDefinition that is being deleted discovery
// does not tell that its objects can be patched, which is just what it waits for.
func (r *Releaser) types(where Where) ([]resource, error) {
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
			able := slices.Contains(t.Verbs, "list") && patched && !strings.Contains(t.Name, "/")
			gvr := gv.WithResource(t.Name)
			if able && (where.Select == nil || where.Select(gvr.GroupResource())) {
				found = append(found, resource{gvr, t.Kind, t.Namespaced})
			}
		}
	}
	return found, err
}

func (r *Releaser) list(ctx context.Context, t resource, where Where) ([]Held, error) {
	client := r.Metadata.Resource(t.GroupVersionResource).Namespace(where.Namespace)
	options := metav1.ListOptions{LabelSelector: where.Labels}
	if where.Name != "" {
		options.FieldSelector = "metadata.name=" + where.Name
	}
	var found []Held
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) })
	err := list.EachListItem(ctx, options, func(item runtime.Object) error {
		o, ok := item.(*metav1.PartialObjectMetadata)
		if !ok {
			return fmt.Errorf("listed a %T", item)
		}
		if !slices.ContainsFunc(o.Finalizers, where.has) {
			return nil
		}
		found = append(found, Held{
			Resource: t.GroupVersionResource, Kind: t.kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID,
			Terminating: o.DeletionTimestamp != nil,
			Finalizers:  slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return !where.has(f) }),
			Others:      slices.DeleteFunc(slices.Clone(o.Finalizers), where.has),
		})
		return nil
	})
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return found, nil // the type has gone, or is one in name only
	}
	if err != nil {
		return found, fmt.Errorf("list %s: %w", t.GroupResource(), err)
	}
	return found, nil
}

// Release takes the finalizers that were found off one object, and what is
// remembered for them. It reports whether there was one left.
func (r *Releaser) Release(ctx context.Context, h Held) (released bool, err error) {
	client := r.Metadata.Resource(h.Resource).Namespace(h.Namespace)
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		o, err := client.Get(ctx, h.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && (o.UID != h.UID || !slices.ContainsFunc(o.Finalizers, h.has)) {
			return nil
		}
		if err != nil {
			return err
		}
		body, err := json.Marshal(map[string]any{"metadata": h.without(o)})
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

func (h Held) has(finalizer string) bool { return slices.Contains(h.Finalizers, finalizer) }

// without is the change to an object's metadata, which is of that state of it alone.
func (h Held) without(o *metav1.PartialObjectMetadata) map[string]any {
	meta := map[string]any{
		"uid": o.UID, "resourceVersion": o.ResourceVersion, "finalizers": slices.DeleteFunc(slices.Clone(o.Finalizers), h.has),
	}
	if !memo.Fits(h.Resource.Group) {
		return meta
	}
	annotations := map[string]*string{}
	if _, remembers := o.Annotations[memo.Annotation]; remembers && h.has(graph.Hold) {
		annotations[memo.Annotation] = nil
	}
	if text, remembers := o.Annotations[Notes]; remembers {
		annotations[Notes] = forget(text, h.has)
	}
	if len(annotations) != 0 {
		meta["annotations"] = annotations
	}
	return meta
}
