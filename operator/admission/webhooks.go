package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/operator/policyset"
)

const (
	// ConfigurationName is the name of the MutatingWebhookConfiguration that exists where
	// the API server has no MutatingAdmissionPolicies.
	ConfigurationName = "gleaner-place"

	// Path is the path of the webhooks that add finalizers, followed by the name of the
	// admission object.
	Path = "/place/"

	// webhookSuffix ends the names of these webhooks.
	webhookSuffix = ".place.gleaner.dev"

	// webhookTimeout in seconds is short since the creation of an object waits for it, and
	// the finalizer is added a moment later in any case.
	webhookTimeout = 1
)

// ErrNoCertificate is returned until the webhook server has a certificate.
var ErrNoCertificate = errors.New("there is no certificate for the webhook yet")

// installWebhooks does with webhooks what admission policies do where the API server has
// them. It selects the objects in the same way, so all that is left to be answered is
// which finalizer to add. What is retained stays as it is.
func (i *Installer) installWebhooks(ctx context.Context, wanted []addition, retained map[string]string) error {
	if i.options.Webhook == nil {
		return nil // finalizers are only added after creation
	}
	objects := i.options.Objects
	configuration := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName}}
	if len(wanted) == 0 && len(retained) == 0 {
		return objects.Remove(ctx, configuration)
	}
	if len(wanted) == 0 {
		err := objects.client.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)
		switch {
		case apierrors.IsNotFound(err):
			return nil // there is nothing to retain
		case err != nil:
			return fmt.Errorf("read MutatingWebhookConfiguration %s: %w", ConfigurationName, err)
		case len(retainedWebhooks(configuration.Webhooks, nil, retained)) == 0:
			return objects.Remove(ctx, configuration)
		}
	}
	user, err := objects.User(ctx)
	if err != nil {
		return err
	}
	webhooks := make([]admissionv1.MutatingWebhook, 0, len(wanted))
	for _, a := range wanted {
		w, ok := i.webhookOf(a, user)
		if !ok {
			return ErrNoCertificate
		}
		webhooks = append(webhooks, w)
	}
	return objects.Ensure(ctx, configuration, func() {
		configuration.Webhooks = append(retainedWebhooks(configuration.Webhooks, wanted, retained), webhooks...)
		slices.SortFunc(configuration.Webhooks, func(a, b admissionv1.MutatingWebhook) int { return cmp.Compare(a.Name, b.Name) })
	})
}

// retainedWebhooks returns the existing webhooks that are retained, without those that are
// wanted.
func retainedWebhooks(existing []admissionv1.MutatingWebhook, wanted []addition, retained map[string]string) []admissionv1.MutatingWebhook {
	return slices.DeleteFunc(slices.Clone(existing), func(w admissionv1.MutatingWebhook) bool {
		name := strings.TrimSuffix(w.Name, webhookSuffix)
		_, is := retained[name]
		return !is || slices.ContainsFunc(wanted, func(a addition) bool { return a.name == name })
	})
}

// webhookOf returns the webhook for what the admission policy would be for; ok is false
// until there is a certificate.
func (i *Installer) webhookOf(a addition, user string) (w admissionv1.MutatingWebhook, ok bool) {
	like := a.policySpec(user, i.options.Objects.ExemptNamespaces())
	config, ok := i.options.Webhook.At(Path + a.name)
	w = admissionv1.MutatingWebhook{
		Name: a.name + webhookSuffix, ClientConfig: config, FailurePolicy: ptr.To(admissionv1.Ignore),
		MatchPolicy: like.MatchConstraints.MatchPolicy, SideEffects: ptr.To(admissionv1.SideEffectClassNone),
		TimeoutSeconds: ptr.To[int32](webhookTimeout), AdmissionReviewVersions: []string{"v1"},
		ReinvocationPolicy: ptr.To(like.ReinvocationPolicy),
		NamespaceSelector:  like.MatchConstraints.NamespaceSelector, ObjectSelector: like.MatchConstraints.ObjectSelector,
		MatchConditions: like.MatchConditions,
	}
	for _, r := range a.rules {
		w.Rules = append(w.Rules, r.RuleWithOperations)
	}
	return w, ok
}

// FinalizerOf returns the finalizer that the webhook of an admission object adds; ok is
// false if it adds none any more. The API server may ask any replica, so this depends on
// the snapshot alone.
func FinalizerOf(s *policyset.Snapshot, name string) (finalizer string, ok bool) {
	if s == nil {
		return "", false
	}
	for _, a := range additions(s) {
		if a.name == name {
			return a.finalizer, true
		}
	}
	finalizer, ok = retained(s)[name] // it is asked about if it was installed before
	return finalizer, ok
}
