package modules

import (
	"context"
	"fmt"
	"strings"

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
	// holdParameter is a ConfigMap without which Gleaner's admission policies do nothing, so
	// that deleting the operator's namespace disarms them.
	holdParameter = "gleaner-holds"

	managedBy = "app.kubernetes.io/managed-by"
	gleaner   = "gleaner"
)

// lacks reports whether an error says that the API server has no such type.
func lacks(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// removeOthers takes away the admission objects of ours that are not to be kept, of
// those whose names begin so. Bindings come before what they bind.
func (k *Keeper) removeOthers(ctx context.Context, keep map[string]bool, prefix string, lists ...client.ObjectList) error {
	for _, list := range lists {
		if err := k.client.List(ctx, list, client.MatchingLabels{managedBy: gleaner}); err != nil {
			return fmt.Errorf("list admission policies: %w", err)
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return fmt.Errorf("list admission policies: %w", err)
		}
		for _, item := range items {
			o := item.(client.Object)
			if keep[o.GetName()] || !strings.HasPrefix(o.GetName(), prefix) {
				continue
			}
			if err := k.client.Delete(ctx, o); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("remove admission policy %s: %w", o.GetName(), err)
			}
		}
	}
	return nil
}

// removeConfiguration takes the configuration of a webhook away, if there is one: where
// nothing is governed nothing is written.
func (k *Keeper) removeConfiguration(ctx context.Context, configuration client.Object) error {
	err := k.client.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)
	if err == nil {
		err = k.client.Delete(ctx, configuration)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove the webhook %s: %w", configuration.GetName(), err)
	}
	return nil
}

func (k *Keeper) placeParameter(ctx context.Context) error {
	parameter := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.options.Namespace, Name: holdParameter}}
	return k.ensure(ctx, parameter, func() { own(parameter) })
}

func (k *Keeper) parameter() *admissionv1.ParamRef {
	return &admissionv1.ParamRef{
		Name: holdParameter, Namespace: k.options.Namespace, ParameterNotFoundAction: ptr.To(admissionv1.AllowAction),
	}
}

// home has the operator's namespace own something: whoever removes that removes this with
// it.
func (k *Keeper) home(ctx context.Context) ([]metav1.OwnerReference, error) {
	namespace := &corev1.Namespace{}
	if err := k.client.Get(ctx, client.ObjectKey{Name: k.options.Namespace}, namespace); err != nil {
		return nil, fmt.Errorf("read the operator's namespace: %w", err)
	}
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: namespace.Name, UID: namespace.UID}}, nil
}

// whoAmI is the user that Gleaner's own writes are by.
func (k *Keeper) whoAmI(ctx context.Context) (string, error) {
	if k.user != "" {
		return k.user, nil
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := k.client.Create(ctx, review); err != nil {
		return "", fmt.Errorf("ask who Gleaner is: %w", err)
	}
	k.user = review.Status.UserInfo.Username
	return k.user, nil
}

// ensure creates an object, or has it changed to what it should be.
func (k *Keeper) ensure(ctx context.Context, o client.Object, change func()) error {
	_, err := controllerutil.CreateOrUpdate(ctx, k.client, o, func() error {
		change()
		return nil
	})
	if err != nil {
		return fmt.Errorf("make %T %s: %w", o, o.GetName(), err)
	}
	return nil
}

func own(o client.Object) {
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[managedBy] = gleaner
	o.SetLabels(labels)
}

// clear removes what a companion has left that was here before: nobody answers its
// webhooks any more. Not before it is known that there is no other collector, which
// they keep from what policies keep.
func (k *Keeper) clear(ctx context.Context) {
	if k.cleared || k.options.Only == nil || !k.options.Only() {
		return
	}
	err := k.removeOthers(ctx, nil, refusalPrefix, &admissionv1.ValidatingAdmissionPolicyBindingList{}, &admissionv1.ValidatingAdmissionPolicyList{})
	if lacks(err) {
		err = nil
	}
	for _, configuration := range []client.Object{
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: PlaceName}},
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: VetoName}},
	} {
		if err == nil {
			err = k.removeConfiguration(ctx, configuration)
		}
	}
	if k.cleared = err == nil; err != nil && ctx.Err() == nil {
		k.options.Log.Error(err, "What a companion has had the API server do is still there")
	}
}
