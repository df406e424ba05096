package preview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/policies"
)

// simulatedReader reads objects for policies: the object from the cluster, with the metadata of the
// simulation.
type simulatedReader struct {
	cluster *simulatedCluster
	live    modulecall.Reader // nil if all objects are from files
	objects map[objectKey]*unstructured.Unstructured

	policies       *policies.Set
	addUncertainty func(string) // records that the current decision is uncertain
}

// objectKey is an object as read by an account.
type objectKey struct {
	id      graph.ID
	account policies.ServiceAccount
}

// Get implements modulecall.Reader.
func (r *simulatedReader) Get(ctx context.Context, account policies.ServiceAccount, resource schema.GroupVersionResource, ns, name string) (*unstructured.Unstructured, error) {
	o, ok := r.cluster.findEquivalent(resource, ns, name)
	if !ok {
		return nil, apierrors.NewNotFound(resource.GroupResource(), name)
	}
	whole, err := r.readObject(ctx, account, o)
	if err != nil {
		return nil, err
	}
	return whole, setMetadata(whole, o.PartialObjectMetadata)
}

// readObject returns a copy of the object in the cluster.
func (r *simulatedReader) readObject(ctx context.Context, account policies.ServiceAccount, o *object) (*unstructured.Unstructured, error) {
	if known, ok := r.objects[objectKey{o.id, account}]; ok {
		return known.DeepCopy(), nil
	}
	if r.live == nil {
		if account != (policies.ServiceAccount{}) {
			r.addUncertainty(fmt.Sprintf("the permissions of service account %s/%s are not in the file", account.Namespace, account.Name))
		}
		return r.cluster.survey.Items[o.id].Object.DeepCopy(), nil
	}
	whole, err := r.live.Get(ctx, account, o.resource.Version, o.Namespace, o.Name)
	switch {
	case err != nil && isOwnError(err, account):
		r.addUncertainty(fmt.Sprintf("%s could not be read: %v", o, err))
		return nil, errors.New(err.Error()) // not wrapped: the service account is not the cause
	case err != nil:
		return nil, err
	case whole.GetUID() != o.UID:
		r.addUncertainty(fmt.Sprintf("%s was recreated meanwhile", o))
		return nil, fmt.Errorf("read %s: it was recreated", o)
	}
	r.objects[objectKey{o.id, account}] = whole
	return whole.DeepCopy(), nil
}

// isOwnError reports whether an error is one that the operator would not get as well. It would if
// the service account lacks permissions.
func isOwnError(err error, account policies.ServiceAccount) bool {
	if account == (policies.ServiceAccount{}) || !apierrors.IsForbidden(err) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	details := status.Status().Details
	return details == nil || details.Kind == "serviceaccounts" && details.Name == account.Name // impersonation of the account is forbidden
}

// setMetadata sets the metadata of an object to that of the simulation.
func setMetadata(whole *unstructured.Unstructured, m *metav1.PartialObjectMetadata) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&m.ObjectMeta)
	if err != nil {
		return fmt.Errorf("convert metadata of %s: %w", m.Name, err)
	}
	to, _ := whole.Object["metadata"].(map[string]any)
	if to == nil {
		to = map[string]any{}
		whole.Object["metadata"] = to
	}
	for _, field := range []string{"resourceVersion", "ownerReferences", "finalizers", "deletionTimestamp"} {
		delete(to, field)
		if value, has := content[field]; has {
			to[field] = value
		}
	}
	annotations := whole.GetAnnotations()
	for name := range annotations {
		if _, has := m.Annotations[name]; !has && isGleanerAnnotation(name) {
			delete(annotations, name)
		}
	}
	for name, value := range m.Annotations {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[name] = value
	}
	whole.SetAnnotations(annotations)
	return nil
}

// Namespace implements modulecall.Reader.
func (r *simulatedReader) Namespace(ctx context.Context, name string) (modulecall.Namespace, error) {
	if name == "" {
		return modulecall.Namespace{}, nil
	}
	if o, ok := r.cluster.find(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", name); ok && name != r.cluster.survey.ImpliedNamespace {
		return modulecall.Namespace{Labels: o.Labels, Terminating: o.DeletionTimestamp != nil}, nil
	}
	if r.live != nil {
		found, err := r.live.Namespace(ctx, name)
		if err != nil {
			r.addUncertainty(fmt.Sprintf("namespace %s could not be read: %v", name, err))
		}
		return found, err
	}
	if slices.ContainsFunc(r.policies.All(), func(p *policies.Policy) bool { return p.NamespaceSelector != nil && !p.NamespaceSelector.Empty() }) {
		r.addUncertainty(fmt.Sprintf("namespace %s is not in the file, but policies select namespaces by labels", name))
		return modulecall.Namespace{}, fmt.Errorf("namespace %s is not in the file", name)
	}
	return modulecall.Namespace{}, nil
}

// Do implements modulecall.Intents. It does nothing, since the objects may be different at the
// simulated time.
func (r *simulatedReader) Do(_ context.Context, on intents.Identity, intent hostabi.Intent) hostabi.Result {
	if slices.ContainsFunc(r.policies.All(), func(p *policies.Policy) bool { return p.String() == on.Name && p.Enforce }) {
		r.addUncertainty(on.Name + " reads other objects, which a preview does not")
	}
	return hostabi.Result{Error: &hostabi.ResultError{Reason: hostabi.ErrorUnavailable, Message: "this is a preview"}}
}

var _ modulecall.Reader = (*simulatedReader)(nil)

// isGleanerAnnotation reports whether an annotation is one of those that a survey keeps.
func isGleanerAnnotation(annotation string) bool {
	return strings.HasPrefix(annotation, "gleaner.dev/")
}
