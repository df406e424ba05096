// Package release takes Gleaner's holds off objects, without the operator: when it
// has gone, or when somebody has to have an object go now.
//
// It deletes nothing. An object that is being deleted and has no other finalizer
// goes once its hold is off, and its dependents with it as its other finalizers
// and Kubernetes' own rules say.
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
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/memo"
)

// Held is an object that has a hold.
type Held struct {
	Resource    schema.GroupVersionResource
	Kind        string
	Namespace   string
	Name        string
	UID         types.UID
	Terminating bool
	Others      []string // its other finalizers
}

// String returns resource.group/name, as kubectl takes it.
func (h Held) String() string {
	return h.Resource.GroupResource().String() + "/" + h.Name
}

// Releaser finds holds and takes them off. Both fields are required.
type Releaser struct {
	Metadata  metadata.Interface
	Discovery discovery.DiscoveryInterface
}

// Where narrows down what is looked through. The zero Where is everything.
type Where struct {
	Select    func(schema.GroupResource) bool // nil: all resources
	Namespace string                          // "": all, and what is in none
	Labels    string                          // a label selector
	Name      string
}

// Find lists the objects that have a hold. An error comes with what was found
// nevertheless: some types may not be there to be listed.
func (r *Releaser) Find(ctx context.Context, where Where) ([]Held, error) {
	types, err := r.types(where)
	var all []Held
	for _, t := range types {
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

// types finds the types that can have holds: those that can be listed and patched.
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
			able := slices.Contains(t.Verbs, "list") && slices.Contains(t.Verbs, "patch") && !strings.Contains(t.Name, "/")
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
		if !slices.Contains(o.Finalizers, graph.Hold) {
			return nil
		}
		found = append(found, Held{
			Resource: t.GroupVersionResource, Kind: t.kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID,
			Terminating: o.DeletionTimestamp != nil, Others: without(o.Finalizers),
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

func without(finalizers []string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == graph.Hold })
}

// Release takes the hold off one object, and what is remembered of its deletion. It
// reports whether there was one.
func (r *Releaser) Release(ctx context.Context, h Held) (released bool, err error) {
	client := r.Metadata.Resource(h.Resource).Namespace(h.Namespace)
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		o, err := client.Get(ctx, h.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && (o.UID != h.UID || !slices.Contains(o.Finalizers, graph.Hold)) {
			return nil
		}
		if err != nil {
			return err
		}
		meta := map[string]any{"uid": o.UID, "resourceVersion": o.ResourceVersion, "finalizers": without(o.Finalizers)}
		if _, remembers := o.Annotations[memo.Annotation]; remembers && memo.Fits(h.Resource.Group) {
			meta["annotations"] = map[string]any{memo.Annotation: nil}
		}
		body, err := json.Marshal(map[string]any{"metadata": meta})
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
