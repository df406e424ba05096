package admission

import (
	"context"
	"fmt"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const (
	// parameterName is a ConfigMap without which Gleaner's admission policies do nothing,
	// so that deleting the operator's namespace disables them.
	parameterName = "gleaner-holds"

	managedBy = "app.kubernetes.io/managed-by"
	gleaner   = "gleaner"

	// MaxPolicies bounds the admission policies of one kind, since every write of an object
	// goes through all of them.
	MaxPolicies = 50
)

// Objects writes admission objects. They are labeled, and owned by the operator's
// namespace: deleting that deletes them. Its methods may be called concurrently.
type Objects struct {
	client    client.Client
	namespace string // the operator's

	mu   sync.Mutex // covers user
	user string
}

// NewObjects returns Objects of an operator that runs in a namespace.
func NewObjects(c client.Client, namespace string) *Objects {
	return &Objects{client: c, namespace: namespace}
}

// Client returns the client that objects are written with.
func (o *Objects) Client() client.Client { return o.client }

// Namespace returns the operator's namespace.
func (o *Objects) Namespace() string { return o.namespace }

// IsMissingType reports whether an error says that the API server does not serve a type.
func IsMissingType(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// RemoveExcept deletes Gleaner's objects of some types whose names have a prefix, except
// those to keep. Bindings come before what they bind.
func (o *Objects) RemoveExcept(ctx context.Context, keep map[string]bool, prefix string, lists ...client.ObjectList) error {
	for _, list := range lists {
		if err := o.client.List(ctx, list, client.MatchingLabels{managedBy: gleaner}); err != nil {
			return fmt.Errorf("list admission policies: %w", err)
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return fmt.Errorf("list admission policies: %w", err)
		}
		for _, item := range items {
			object := item.(client.Object)
			if keep[object.GetName()] || !strings.HasPrefix(object.GetName(), prefix) {
				continue
			}
			if err := o.client.Delete(ctx, object); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("delete admission policy %s: %w", object.GetName(), err)
			}
		}
	}
	return nil
}

// Remove deletes a webhook configuration if it exists: where nothing is governed, nothing
// is written.
func (o *Objects) Remove(ctx context.Context, configuration client.Object) error {
	err := o.client.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)
	if err == nil {
		err = o.client.Delete(ctx, configuration)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete webhook configuration %s: %w", configuration.GetName(), err)
	}
	return nil
}

// EnsureParameter creates the ConfigMap that admission policies depend on.
func (o *Objects) EnsureParameter(ctx context.Context) error {
	parameter := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: parameterName}}
	return o.ensure(ctx, parameter, func() { label(parameter) })
}

// Parameter returns the reference to that ConfigMap.
func (o *Objects) Parameter() *admissionv1.ParamRef {
	return &admissionv1.ParamRef{
		Name: parameterName, Namespace: o.namespace, ParameterNotFoundAction: ptr.To(admissionv1.AllowAction),
	}
}

// User returns the user name of Gleaner's own requests.
func (o *Objects) User(ctx context.Context) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.user != "" {
		return o.user, nil
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := o.client.Create(ctx, review); err != nil {
		return "", fmt.Errorf("find out Gleaner's user name: %w", err)
	}
	o.user = review.Status.UserInfo.Username
	return o.user, nil
}

// Ensure creates an object, or changes it to what it should be.
func (o *Objects) Ensure(ctx context.Context, object client.Object, change func()) error {
	namespace := &corev1.Namespace{}
	if err := o.client.Get(ctx, client.ObjectKey{Name: o.namespace}, namespace); err != nil {
		return fmt.Errorf("read the operator's namespace: %w", err)
	}
	return o.ensure(ctx, object, func() {
		label(object)
		object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: namespace.Name, UID: namespace.UID}})
		change()
	})
}

func (o *Objects) ensure(ctx context.Context, object client.Object, change func()) error {
	_, err := controllerutil.CreateOrUpdate(ctx, o.client, object, func() error {
		change()
		return nil
	})
	if err != nil {
		return fmt.Errorf("create or update %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

func label(o client.Object) {
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[managedBy] = gleaner
	o.SetLabels(labels)
}

// ExemptNamespaces selects all namespaces except those that must not depend on Gleaner's
// admission objects: the operator's own and kube-system.
func (o *Objects) ExemptNamespaces() metav1.LabelSelectorRequirement {
	names := []string{metav1.NamespaceSystem}
	if o.namespace != metav1.NamespaceSystem {
		names = append(names, o.namespace)
	}
	return metav1.LabelSelectorRequirement{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: names}
}
