package release

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	// ManagedSelector is the label selector of the objects that the operator creates.
	ManagedSelector = "app.kubernetes.io/managed-by=gleaner"

	// LeaseName is the name of the operator's Lease.
	LeaseName = "gleaner.dev"

	namePrefix = "gleaner-" // name prefix of its admission objects
)

// admissionGroup is the API group of admission objects.
const admissionGroup = "admissionregistration.k8s.io"

// admissionResources are the resources of admission objects, in the order of removal:
// bindings before the policies that they bind.
var admissionResources = []string{
	"mutatingadmissionpolicybindings", "validatingadmissionpolicybindings", "mutatingwebhookconfigurations",
	"validatingwebhookconfigurations", "mutatingadmissionpolicies", "validatingadmissionpolicies",
}

// An AdmissionObject is one of the operator's admission webhook configurations, policies or
// bindings.
type AdmissionObject struct {
	Resource schema.GroupVersionResource
	Name     string
	UID      types.UID
}

// String returns resource.group/name, as accepted by kubectl.
func (a AdmissionObject) String() string { return a.Resource.GroupResource().String() + "/" + a.Name }

// AdmissionObjects lists the operator's admission objects, in the order of removal.
func (r *Releaser) AdmissionObjects(ctx context.Context) ([]AdmissionObject, error) {
	var all []AdmissionObject
	var errs []error
	for _, resource := range admissionResources {
		gvr := schema.GroupVersionResource{Group: admissionGroup, Version: "v1", Resource: resource}
		list, err := r.Metadata.Resource(gvr).List(ctx, metav1.ListOptions{LabelSelector: ManagedSelector})
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			continue // not served by this API server
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("list %s: %w", gvr.GroupResource(), err))
			continue
		}
		for _, o := range list.Items {
			if strings.HasPrefix(o.Name, namePrefix) {
				all = append(all, AdmissionObject{gvr, o.Name, o.UID})
			}
		}
	}
	return all, errors.Join(errs...)
}

// RemoveAdmissionObject deletes an admission object, unless it was replaced.
func (r *Releaser) RemoveAdmissionObject(ctx context.Context, a AdmissionObject) error {
	err := r.Metadata.Resource(a.Resource).Delete(ctx, a.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &a.UID}, PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove %s: %w", a, err)
	}
	return nil
}

// ActiveLeases returns the operator's unexpired leases as namespace/name, comma-separated; "" if
// there are none.
func (r *Releaser) ActiveLeases(ctx context.Context, now time.Time) (string, error) {
	list, err := r.Leases.Leases("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + LeaseName})
	if err != nil {
		return "", fmt.Errorf("list leases: %w", err)
	}
	var active []string
	for _, l := range list.Items {
		duration := time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second
		if ptr.Deref(l.Spec.HolderIdentity, "") != "" && l.Spec.RenewTime != nil && now.Sub(l.Spec.RenewTime.Time) < duration {
			active = append(active, l.Namespace+"/"+l.Name)
		}
	}
	slices.Sort(active)
	return strings.Join(active, ", "), nil
}
