package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/restore"
)

const (
	requestTimeout = 30 * time.Second // for one request
	concurrency    = 16               // of reads
	fieldManager   = "gleaner-restore"
)

// cluster reads and writes the objects of a cluster.
type cluster struct {
	objects   dynamic.Interface
	discovery discovery.ServerGroupsInterface
	resources func(schema.GroupVersion) (*metav1.APIResourceList, error)
	mapper    meta.RESTMapper
}

func connect(config *rest.Config) (cluster, error) {
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return cluster{}, fmt.Errorf("make client: %w", err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return cluster{}, fmt.Errorf("make client: %w", err)
	}
	return cluster{
		objects: objects, discovery: client,
		resources: func(gv schema.GroupVersion) (*metav1.APIResourceList, error) {
			return client.ServerResourcesForGroupVersion(gv.String())
		},
		// kubectl's cache on disk may be older than what is restored.
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client)),
	}, nil
}

// read reads what is at keys. Versions has the API version of each key at which an object is to be
// created: it has to be served.
func (c cluster) read(ctx context.Context, keys []restore.Key, versions map[restore.Key]string, done func(int)) (map[restore.Key]restore.Live, error) {
	found := make([]*restore.Live, len(keys))
	var group errgroup.Group
	group.SetLimit(concurrency)
	for i, key := range keys {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			found[i] = c.liveAt(ctx, key, versions[key])
			return nil
		})
		done(i)
	}
	_ = group.Wait() // each has its own reason
	live := map[restore.Key]restore.Live{}
	for i, l := range found {
		if l != nil {
			live[keys[i]] = *l
		}
	}
	return live, ctx.Err()
}

// liveAt reads what is at a key; nil, if the scope of the type is another one.
func (c cluster) liveAt(ctx context.Context, key restore.Key, version string) *restore.Live {
	mapping, err := c.mapping(key.GroupKind, version)
	if meta.IsNoMatchError(err) {
		return c.confirmUnserved(key.GroupKind, version)
	}
	if err != nil {
		return &restore.Live{Reason: err.Error()}
	}
	if namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace; namespaced != (key.Namespace != "") {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	o, err := c.objects.Resource(mapping.Resource).Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		return &restore.Live{Presence: restore.Present, Object: o}
	case catalog.ConfirmsNotFound(err, mapping.Resource.GroupResource(), key.Name):
		return &restore.Live{Presence: restore.Absent}
	default:
		return &restore.Live{Reason: err.Error()}
	}
}

func (c cluster) mapping(gk schema.GroupKind, version string) (*meta.RESTMapping, error) {
	if version == "" {
		return c.mapper.RESTMapping(gk)
	}
	return c.mapper.RESTMapping(gk, version)
}

// confirmUnserved reports whether the API server says that it does not serve a kind. A group whose
// discovery fails, such as one of an aggregated API server that is down, confirms nothing.
func (c cluster) confirmUnserved(gk schema.GroupKind, version string) *restore.Live {
	groups, err := c.discovery.ServerGroups()
	if err != nil {
		return &restore.Live{Reason: err.Error()}
	}
	i := slices.IndexFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == gk.Group })
	if i < 0 {
		return &restore.Live{Presence: restore.Unserved}
	}
	reason := ""
	for _, v := range groups.Groups[i].Versions {
		list, err := c.resources(schema.GroupVersion{Group: gk.Group, Version: v.Version})
		if err != nil {
			return &restore.Live{Reason: err.Error()}
		}
		if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == gk.Kind }) {
			continue
		}
		if version == "" || v.Version == version {
			return &restore.Live{Reason: "its type is served only since a moment: try again"}
		}
		reason = fmt.Sprintf("%s in version %s, only in %s", gk, version, v.Version)
	}
	return &restore.Live{Presence: restore.Unserved, Reason: reason}
}

// create creates an object.
func (c cluster) create(ctx context.Context, o *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error) {
	mapping, err := c.mapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
	if err != nil {
		return nil, err
	}
	options := metav1.CreateOptions{FieldManager: fieldManager}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.objects.Resource(mapping.Resource).Namespace(o.GetNamespace()).Create(ctx, o, options)
}

// get reads the object that an object is to be.
func (c cluster) get(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	mapping, err := c.mapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.objects.Resource(mapping.Resource).Namespace(o.GetNamespace()).Get(ctx, o.GetName(), metav1.GetOptions{})
}

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	volumes     = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}
)

// hasStatus reports whether objects of a kind are custom resources with a status subresource. The
// status of other kinds is what Kubernetes observes, and not restored.
func (c cluster) hasStatus(ctx context.Context, gvk schema.GroupVersionKind) (bool, error) {
	mapping, err := c.mapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	definition, err := c.objects.Resource(definitions).Get(ctx, mapping.Resource.GroupResource().String(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	return slices.ContainsFunc(versions, func(v any) bool {
		fields, _ := v.(map[string]any)
		_, has, _ := unstructured.NestedMap(fields, "subresources", "status")
		return fields["name"] == gvk.Version && has
	}), err
}

func (c cluster) updateStatus(ctx context.Context, o *unstructured.Unstructured) error {
	mapping, err := c.mapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err = c.objects.Resource(mapping.Resource).Namespace(o.GetNamespace()).UpdateStatus(ctx, o, metav1.UpdateOptions{FieldManager: fieldManager})
	return err
}

// rebind lets a volume refer to a restored claim, if it still refers to the former one.
func (c cluster) rebind(ctx context.Context, volume string, former, current types.UID) error {
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/spec/claimRef/uid", "value": former},
		{"op": "replace", "path": "/spec/claimRef/uid", "value": current},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err = c.objects.Resource(volumes).Patch(ctx, volume, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	return err
}

// errNotServed means that a type was defined, and is not served yet.
var errNotServed = errors.New("its type is not served yet")

// awaitServed waits until the types of a CustomResourceDefinition are served.
func (c cluster) awaitServed(ctx context.Context, definition *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	return retry(ctx, func() error {
		if resettable, ok := c.mapper.(meta.ResettableRESTMapper); ok {
			resettable.Reset()
		}
		if _, err := c.mapping(schema.GroupKind{Group: group, Kind: kind}, ""); err != nil {
			return errNotServed
		}
		return nil
	}, func(error) bool { return true })
}

const (
	retryTimeout  = 30 * time.Second
	retryInterval = 250 * time.Millisecond
)

// retry repeats do until it succeeds, or fails with an error that is final, or for 30 seconds.
func retry(ctx context.Context, do func() error, again func(error) bool) error {
	ctx, cancel := context.WithTimeout(ctx, retryTimeout)
	defer cancel()
	ticker := time.NewTicker(retryInterval)
	defer ticker.Stop()
	for {
		err := do()
		if err == nil || !again(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
}
