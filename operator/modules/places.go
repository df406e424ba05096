package modules

import (
	"context"
	"net/url"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// PlaceName is the name of the MutatingWebhookConfiguration, which there is where the API
// server has no MutatingAdmissionPolicies.
const PlaceName = "gleaner-place"

// PlacePath is below what the webhook is served that places finalizers, with the name of
// the placement.
const PlacePath = "/place/"

// placeSeconds is what the API server gives an answer: whoever creates the object waits
// for it, and the finalizer comes a moment later in any case.
const placeSeconds = 1

// placeByWebhook does by a webhook what placeHold does by admission policies. The API
// server selects the objects in the same way, so all that is left to be told is which
// finalizer is meant.
func (k *Keeper) placeByWebhook(ctx context.Context, wanted []placement) error {
	v := k.options.Veto
	if v == nil {
		return nil // there is no webhook: holds come after creation
	}
	configuration := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: PlaceName}}
	if len(wanted) == 0 {
		return k.removeConfiguration(ctx, configuration)
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
		configuration.Webhooks = nil
		for _, p := range wanted {
			w := placing(p, v, user, k.options.Namespace)
			w.ClientConfig.CABundle = ca
			configuration.Webhooks = append(configuration.Webhooks, w)
		}
	})
}

// placeFor notes what a webhook is to place. Any replica may be asked, and not the leader
// alone.
func (k *Keeper) placeFor(b *build) {
	finalizers := map[string]string{}
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
		Name: p.name + ".place.gleaner.dev", ClientConfig: v.at(PlacePath + p.name), FailurePolicy: ptr.To(admissionv1.Ignore),
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
