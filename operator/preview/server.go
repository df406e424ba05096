package preview

import (
	"context"
	"errors"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
)

// server is the API server of a world. What the world has never had is asked of the
// cluster that it is a copy of, where there is one; writes stay in the world.
type server struct{ world *world }

// Resource implements metadata.Interface.
func (s server) Resource(r schema.GroupVersionResource) metadata.Getter {
	return part{world: s.world, resource: r}
}

// part is the API for one resource, in one namespace or in none.
type part struct {
	world     *world
	resource  schema.GroupVersionResource
	namespace string
}

// Namespace implements metadata.Getter.
func (p part) Namespace(namespace string) metadata.ResourceInterface {
	p.namespace = namespace
	return p
}

// find returns an object of the world. There is none, and no doubt about it, if it
// has ended there, or if all of its kind are known.
func (p part) find(name string) (*object, error) {
	if o, ok := p.world.find(p.resource, p.namespace, name); ok {
		return o, nil
	}
	return nil, apierrors.NewNotFound(p.resource.GroupResource(), name)
}

// Get implements metadata.ResourceInterface.
func (p part) Get(ctx context.Context, name string, options metav1.GetOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	if o, err := p.find(name); err == nil {
		return o.DeepCopy(), nil
	}
	if _, had := p.world.names[named{place{p.resource.GroupResource(), p.namespace}, name}]; had {
		return nil, apierrors.NewNotFound(p.resource.GroupResource(), name)
	}
	return p.world.survey.Client.Resource(p.resource).Namespace(p.namespace).Get(ctx, name, options)
}

// List implements metadata.ResourceInterface.
func (p part) List(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(p.world.version, 10)}}
	for _, o := range p.world.in(p.resource.GroupResource(), p.namespace) {
		list.Items = append(list.Items, *o.DeepCopy())
	}
	return list, nil
}

// Delete implements metadata.ResourceInterface.
func (p part) Delete(_ context.Context, name string, options metav1.DeleteOptions, _ ...string) error {
	o, err := p.find(name)
	if err != nil {
		return err
	}
	return p.world.delete(o, options)
}

// Patch implements metadata.ResourceInterface. No type takes a strategic merge
// patch, which the collector then makes a merge patch of.
func (p part) Patch(_ context.Context, name string, how types.PatchType, body []byte, _ metav1.PatchOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	if how != types.MergePatchType {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: 415, Reason: metav1.StatusReasonUnsupportedMediaType,
		}}
	}
	o, err := p.find(name)
	if err != nil {
		return nil, err
	}
	if err := p.world.patch(o, body); err != nil {
		return nil, err
	}
	return o.DeepCopy(), nil
}

var errNever = errors.New("a preview is never asked that")

// DeleteCollection implements metadata.ResourceInterface.
func (part) DeleteCollection(context.Context, metav1.DeleteOptions, metav1.ListOptions) error {
	return errNever
}

// Watch implements metadata.ResourceInterface.
func (part) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return nil, errNever
}

// served answers for the types of the world, and asks the cluster for others.
func (w *world) served(ctx context.Context, r schema.GroupVersionResource) (bool, error) {
	if w.survey.Types.Serves(r) {
		return true, nil
	}
	return w.survey.Served(ctx, r)
}

// compare orders objects for people: by kind, namespace and name.
func compare(a, b *object) int {
	return slices.Compare(
		[]string{a.resource.Kind, a.resource.Version.Group, a.Namespace, a.Name, string(a.UID)},
		[]string{b.resource.Kind, b.resource.Version.Group, b.Namespace, b.Name, string(b.UID)})
}

var _ metadata.Interface = server{}
