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

// simulatedClient is the metadata client of the simulation. Objects that it never had are read from
// the cluster, if there is one. Writes only change the simulation.
type simulatedClient struct{ cluster *simulatedCluster }

// Resource implements metadata.Interface.
func (s simulatedClient) Resource(r schema.GroupVersionResource) metadata.Getter {
	return simulatedResource{cluster: s.cluster, resource: r}
}

// simulatedResource is the client for one resource, in one namespace or cluster-scoped.
type simulatedResource struct {
	cluster   *simulatedCluster
	resource  schema.GroupVersionResource
	namespace string
}

// Namespace implements metadata.Getter.
func (p simulatedResource) Namespace(namespace string) metadata.ResourceInterface {
	p.namespace = namespace
	return p
}

// find returns an object of the simulation.
func (p simulatedResource) find(name string) (*object, error) {
	if o, ok := p.cluster.find(p.resource, p.namespace, name); ok {
		return o, nil
	}
	return nil, apierrors.NewNotFound(p.resource.GroupResource(), name)
}

// Get implements metadata.ResourceInterface.
func (p simulatedResource) Get(ctx context.Context, name string, options metav1.GetOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	if o, err := p.find(name); err == nil {
		return o.DeepCopy(), nil
	}
	if _, had := p.cluster.deletedNames[namedLocation{location{p.resource.GroupResource(), p.namespace}, name}]; had {
		return nil, apierrors.NewNotFound(p.resource.GroupResource(), name)
	}
	return p.cluster.survey.Client.Resource(p.resource).Namespace(p.namespace).Get(ctx, name, options)
}

// List implements metadata.ResourceInterface.
func (p simulatedResource) List(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(p.cluster.version, 10)}}
	for _, o := range p.cluster.list(p.resource.GroupResource(), p.namespace) {
		list.Items = append(list.Items, *o.DeepCopy())
	}
	return list, nil
}

// Delete implements metadata.ResourceInterface.
func (p simulatedResource) Delete(_ context.Context, name string, options metav1.DeleteOptions, _ ...string) error {
	o, err := p.find(name)
	if err != nil {
		return err
	}
	return p.cluster.delete(o, options)
}

// Patch implements metadata.ResourceInterface. It does not support strategic merge patches;
// the collector then sends a merge patch.
func (p simulatedResource) Patch(_ context.Context, name string, patchType types.PatchType, body []byte, _ metav1.PatchOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	if patchType != types.MergePatchType {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: 415, Reason: metav1.StatusReasonUnsupportedMediaType,
		}}
	}
	o, err := p.find(name)
	if err != nil {
		return nil, err
	}
	if err := p.cluster.patch(o, body); err != nil {
		return nil, err
	}
	return o.DeepCopy(), nil
}

var errUnsupported = errors.New("not supported in a preview")

// DeleteCollection implements metadata.ResourceInterface.
func (simulatedResource) DeleteCollection(context.Context, metav1.DeleteOptions, metav1.ListOptions) error {
	return errUnsupported
}

// Watch implements metadata.ResourceInterface.
func (simulatedResource) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return nil, errUnsupported
}

// serves reports whether a resource is served: by the simulation, or by the cluster.
func (w *simulatedCluster) serves(ctx context.Context, r schema.GroupVersionResource) (bool, error) {
	if w.survey.Types.Serves(r) {
		return true, nil
	}
	return w.survey.Serves(ctx, r)
}

// compare orders objects by kind, group, namespace, name and UID.
func compare(a, b *object) int {
	return slices.Compare(
		[]string{a.resource.Kind, a.resource.Version.Group, a.Namespace, a.Name, string(a.UID)},
		[]string{b.resource.Kind, b.resource.Version.Group, b.Namespace, b.Name, string(b.UID)})
}

var _ metadata.Interface = simulatedClient{}
