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
	// Managed marks what the operator makes, and what goes when it goes.
	Managed = "app.kubernetes.io/managed-by=gleaner"

	// Lease is the name of the operator's lease.
	Lease = "gleaner.dev"

	ours = "gleaner-" // begins the names of its admission objects
)

// admissionGroup has the kinds of admission objects. A binding goes before what it binds.
const admissionGroup = "admissionregistration.k8s.io"

var admissionResources = []string{
	"mutatingadmissionpolicybindings", "validatingadmissionpolicybindings", "mutatingwebhookconfigurations",
	"validatingwebhookconfigurations", "mutatingadmissionpolicies", "validatingadmissionpolicies",
}

// Admission is an object by which the operator has the API server place holds, ask it,
// or refuse something.
type Admission struct {
	Resource schema.GroupVersionResource
	Name     string
	UID      types.UID
}

// String returns resource.group/name, as kubectl takes it.
func (a Admission) String() string { return a.Resource.GroupResource().String() + "/" + a.Name }

// Admissions lists the operator's admission objects, in the order in which they are to
// be removed.
func (r *Releaser) Admissions(ctx context.Context) ([]Admission, error) {
	var all []Admission
	var errs []error
	for _, resource := range admissionResources {
		gvr := schema.GroupVersionResource{Group: admissionGroup, Version: "v1", Resource: resource}
		list, err := r.Metadata.Resource(gvr).List(ctx, metav1.ListOptions{LabelSelector: Managed})
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			continue // this API server has no such type
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("list %s: %w", gvr.GroupResource(), err))
			continue
		}
		for _, o := range list.Items {
			if strings.HasPrefix(o.Name, ours) {
				all = append(all, Admission{gvr, o.Name, o.UID})
			}
		}
	}
	return all, errors.Join(errs...)
}

// Remove deletes an admission object, unless it is another by now.
func (r *Releaser) Remove(ctx context.Context, a Admission) error {
	err := r.Metadata.Resource(a.Resource).Delete(ctx, a.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &a.UID}, PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove %s: %w", a, err)
	}
	return nil
}

// Running returns who holds the operator's lease, as namespace/name; "" if nobody does
// who is alive.
func (r *Releaser) Running(ctx context.Context, now time.Time) (string, error) {
	list, err := r.Leases.Leases("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + Lease})
	if err != nil {
		return "", fmt.Errorf("look for the operator's lease: %w", err)
	}
	var held []string
	for _, l := range list.Items {
		lasts := time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second
		if ptr.Deref(l.Spec.HolderIdentity, "") != "" && l.Spec.RenewTime != nil && now.Sub(l.Spec.RenewTime.Time) < lasts {
			held = append(held, l.Namespace+"/"+l.Name)
		}
	}
	slices.Sort(held)
	return strings.Join(held, ", "), nil
}
