package webhook

import (
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Deletion is a DELETE request for one object.
type Deletion struct {
	Object      *unstructured.Unstructured // as stored in etcd
	Kind        schema.GroupVersionKind
	Propagation metav1.DeletionPropagation // "": the request has none
	DryRun      bool

	// GracePeriodSeconds is nil if the request has none.
	GracePeriodSeconds *int64
}

// DeletionOf decodes a DELETE request. The error says what can't be decoded: such a request should be denied, since it
// may be about an object that a policy keeps.
func DeletionOf(r *admissionv1.AdmissionRequest) (Deletion, error) {
	if r.Operation != admissionv1.Delete {
		return Deletion{}, fmt.Errorf("unsupported operation %s: only DELETE is supported", r.Operation)
	}
	d := Deletion{
		Object: &unstructured.Unstructured{}, DryRun: r.DryRun != nil && *r.DryRun,
		Kind: schema.GroupVersionKind{Group: r.Kind.Group, Version: r.Kind.Version, Kind: r.Kind.Kind},
	}
	if err := d.Object.UnmarshalJSON(r.OldObject.Raw); err != nil {
		return d, fmt.Errorf("decode object: %w", err)
	}
	var options metav1.DeleteOptions
	if err := json.Unmarshal(r.Options.Raw, &options); err != nil {
		return d, fmt.Errorf("decode options: %w", err)
	}
	if options.PropagationPolicy != nil {
		d.Propagation = *options.PropagationPolicy
	}
	d.GracePeriodSeconds = options.GracePeriodSeconds
	return d, nil
}
