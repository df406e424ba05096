package modulecall

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
)

// WithheldError means that a policy or finalizer cannot be evaluated for an object because
// its service account may not read the object. A module is not evaluated without the data
// that it needs, so the object is kept regardless of onFault.
type WithheldError struct {
	Policy  string // as returned by Policy.String
	Message string
}

// Error implements error.
func (e *WithheldError) Error() string { return "may not read the object: " + e.Message }

// Visible returns the object as a policy may read it: by own as Gleaner if the policy is
// cluster-scoped, otherwise by as, as its service account. The error is a *WithheldError if
// the account may not read the object. By is the name of the policy or finalizer.
func Visible(p *policies.Policy, by string, own func() (*unstructured.Unstructured, error),
	as func(policies.ServiceAccount) (*unstructured.Unstructured, error),
) (*unstructured.Unstructured, error) {
	if reason := p.ReadProblem(); reason != "" {
		return nil, &WithheldError{Policy: by, Message: reason}
	}
	if p.Namespace == "" {
		return own()
	}
	object, err := as(p.ServiceAccount)
	if apierrors.IsForbidden(err) {
		err = &WithheldError{Policy: by, Message: err.Error()}
	}
	return object, err
}

// AddObject adds the object to a request, as far as a policy needs it, and lists in the
// request what is withheld. The object is read only if it is needed.
func AddObject(r *hostabi.Request, needs policies.Needs, read func() (*unstructured.Unstructured, error)) error {
	if needs == policies.NeedsReference {
		r.Withheld = append(r.Withheld, "metadata.labels", "metadata.annotations", "object")
		return nil
	}
	object, err := read()
	if err != nil {
		return err
	}
	if needs == policies.NeedsMetadata {
		object = MetadataOf(object)
		r.Withheld = append(r.Withheld, "object")
	}
	shown, err := ObjectOf(object)
	if err != nil {
		return err
	}
	r.Object = shown
	return nil
}

// MetadataOf returns an object with only the type and metadata of another, sharing them.
func MetadataOf(object *unstructured.Unstructured) *unstructured.Unstructured {
	m := &unstructured.Unstructured{Object: map[string]any{}}
	for _, key := range []string{"apiVersion", "kind", "metadata"} {
		if value, ok := object.Object[key]; ok {
			m.Object[key] = value
		}
	}
	return m
}

// ObjectOf converts an object for a request.
func ObjectOf(object *unstructured.Unstructured) (o hostabi.Object, err error) {
	data, err := object.MarshalJSON()
	if err != nil {
		return o, fmt.Errorf("encode %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return o, o.UnmarshalJSON(data)
}

// Reference converts an owner reference for a request.
func Reference(ref metav1.OwnerReference) hostabi.Reference {
	return hostabi.Reference{
		APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: string(ref.UID),
		Controller: ref.Controller, BlockOwnerDeletion: ref.BlockOwnerDeletion,
	}
}

// RequestedPropagation returns what a client has requested for an object's dependents, as its
// finalizers show. If it has both, Orphan takes precedence, as in the API server.
func RequestedPropagation(o graph.Object) hostabi.RequestedPropagation {
	switch {
	case o.Orphan:
		return hostabi.RequestedOrphan
	case o.Foreground:
		return hostabi.RequestedForeground
	default:
		return hostabi.RequestedUnspecified
	}
}
