package modules

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PlaceName is the name of the MutatingWebhookConfiguration, which there is where the API
// server has no MutatingAdmissionPolicies.
const PlaceName = "gleaner-place"

// PlacePath is below what the webhook is served that places finalizers, with the name of
// the placement.
const PlacePath = "/place/"

// placeSuffix ends the names of its webhooks.
const placeSuffix = ".place.gleaner.dev"

// placeSeconds is what the API server gives an answer: whoever creates the object waits
// for it, and the finalizer comes a moment later in any case.
const placeSeconds = 1

// placeByWebhook does by a webhook what placeHold does by admission policies. The API
// server selects the objects in the same way, so all that is left to be told is which
// finalizer is meant. What is retained stays as it is.
func (k *Keeper) placeByWebhook(ctx context.Context, wanted []placement, retained map[string]string) error {
	v := k.options.Veto
	if v == nil {
		return nil // there is no webhook: holds come after creation
	}
	configuration := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: PlaceName}}
	if len(wanted) == 0 && len(retained) == 0 {
		return k.removeConfiguration(ctx, configuration)
	}
	if len(wanted) == 0 {
		err := k.client.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)
		switch {
		case apierrors.IsNotFound(err):
			return nil // nothing is there to be retained
		case err != nil:
			return fmt.Errorf("read MutatingWebhookConfiguration %s: %w", PlaceName, err)
		case len(retain(configuration.Webhooks, nil, retained)) == 0:
			return k.removeConfiguration(ctx, configuration)
		}
	}
	ca := v.CA()
	if len(ca) == 0 {
		return errNoCertificate
	}
	user, err := k.whoAmI(ctx)
	if err != nil {
		return err
	}
	home, err := k.home(ctx)
	if err != nil {
		return err
	}
	return k.ensure(ctx, configuration, func() {
		own(configuration)
		configuration.OwnerReferences = home
		configuration.Webhooks = retain(configuration.Webhooks, wanted, retained)
		for _, p := range wanted {
			w := placing(p, v, user, k.options.Namespace)
			w.ClientConfig.CABundle = ca
			configuration.Webhooks = append(configuration.Webhooks, w)
		}
		slices.SortFunc(configuration.Webhooks, func(a, b admissionv1.MutatingWebhook) int { return cmp.Compare(a.Name, b.Name) })
	})
}

// retain are the webhooks that are there and retained, without those that are wanted.
func retain(there []admissionv1.MutatingWebhook, wanted []placement, retained map[string]string) []admissionv1.MutatingWebhook {
	return slices.DeleteFunc(slices.Clone(there), func(w admissionv1.MutatingWebhook) bool {
		name := strings.TrimSuffix(w.Name, placeSuffix)
		_, is := retained[name]
		return !is || slices.ContainsFunc(wanted, func(p placement) bool { return p.name == name })
	})
}

// placeFor notes what a webhook is to place. Any replica may be asked, and not the leader
// alone.
func (k *Keeper) placeFor(b *build) {
	finalizers := b.retained() // the API server asks about them if they were placed before
	for _, p := range b.placements() {
		finalizers[p.name] = p.finalizer
	}
	k.placing.Store(&finalizers)
}

// Placed is the finalizer that a placement places; ok is false if it places none any
// more.
func (k *Keeper) Placed(name string) (finalizer string, ok bool) {
	if all := k.placing.Load(); all != nil {
		finalizer, ok = (*all)[name]
	}
	return finalizer, ok
}

// placing is the webhook for what the admission policy would be for.
func placing(p placement, v *Veto, user, namespace string) admissionv1.MutatingWebhook {
	like := holdPolicy(p, user, namespace)
	w := admissionv1.MutatingWebhook{
		Name: p.name + placeSuffix, ClientConfig: v.at(PlacePath + p.name), FailurePolicy: ptr.To(admissionv1.Ignore),
		MatchPolicy: like.MatchConstraints.MatchPolicy, SideEffects: ptr.To(admissionv1.SideEffectClassNone),
		TimeoutSeconds: ptr.To[int32](placeSeconds), AdmissionReviewVersions: []string{"v1"},
		ReinvocationPolicy: ptr.To(like.ReinvocationPolicy),
		NamespaceSelector:  like.MatchConstraints.NamespaceSelector, ObjectSelector: like.MatchConstraints.ObjectSelector,
		MatchConditions: like.MatchConditions,
	}
	for _, r := range p.rules {
		w.Rules = append(w.Rules, r.RuleWithOperations)
	}
	return w
}

// at is where a webhook is served that has this path.
func (v *Veto) at(path string) admissionv1.WebhookClientConfig {
	config := *v.Client.DeepCopy()
	path = "/" + v.Secret() + path
	if config.Service != nil {
		config.Service.Path = &path
		return config
	}
	if to, err := url.Parse(ptr.Deref(config.URL, "")); err == nil {
		to.Path = path
		config.URL = ptr.To(to.String())
	}
	return config
}
