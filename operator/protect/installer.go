package protect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/webhook"
)

// Path is the path of the webhooks, followed by the fingerprint of the policies.
const Path = "/protect/"

var (
	errMany = fmt.Errorf("more than %d policies protect objects: write one with more resources in place of several", admission.MaxPolicies)

	errNoWebhook = errors.New("its module is called by a webhook, and Gleaner serves none: start it with --enable-webhooks")
)

// Options configure an Installer.
type Options struct {
	Objects   *admission.Objects
	Snapshots *policyset.Publisher
	Gate      *gate.Gate // only the leader installs

	// Webhook is where the API server reaches the webhooks; nil: then policies with modules do not protect.
	Webhook *webhook.Endpoint

	Versions Versions

	// Collector returns the user name of another garbage collector, whose requests are no user's. Nil: there is none.
	Collector func() string

	Now func() time.Time
	Log logr.Logger
}

// Installer installs what has the API server deny requests. Create it with New.
type Installer struct {
	*admission.Loop

	options Options
}

// New returns an Installer.
func New(o Options) *Installer {
	i := &Installer{options: o}
	i.Loop = admission.NewLoop(admission.LoopOptions{
		Snapshots: o.Snapshots, Gate: o.Gate, Webhook: o.Webhook, Resync: admission.ResyncInterval, Now: o.Now, Log: o.Log,
		Failure: "Some policies do not protect objects",
	}, i)
	return i
}

// Inputs implements admission.Installation.
func (i *Installer) Inputs(s *policyset.Snapshot) string {
	plan := PlanOf(s)
	return i.collector() + " " + i.options.Versions.of(append(slices.Clone(plan.Policies), plan.Webhooks...)...)
}

// collector returns the user name of another garbage collector; "" if there is none.
func (i *Installer) collector() string {
	if i.options.Collector == nil {
		return ""
	}
	return i.options.Collector()
}

// Install implements admission.Installation. It removes what is not required last, so that nothing is unprotected meanwhile.
func (i *Installer) Install(ctx context.Context, s *policyset.Snapshot) admission.Failures {
	plan, failed := PlanOf(s), admission.Failures{}
	plan.bound(failed)
	served, err := i.installed(ctx)
	if err != nil {
		return admission.Failures{"": err}
	}
	if !served { // Kubernetes before 1.30
		plan.Webhooks, plan.Policies = append(plan.Webhooks, plan.Policies...), nil
	}
	user := ""
	if len(plan.Policies)+len(plan.Webhooks) != 0 {
		if user, err = i.options.Objects.User(ctx); err == nil {
			err = i.options.Objects.EnsureParameter(ctx)
		}
		if err != nil {
			return admission.Failures{"": err}
		}
	}
	for _, p := range plan.Policies {
		if err := i.installPolicy(ctx, plan, p, user); err != nil {
			failed[Name(p)] = err
		}
	}
	for _, p := range plan.Webhooks {
		if err := i.installWebhook(ctx, p, s.Fingerprint, user); err != nil {
			failed[Name(p)] = err
		}
	}
	if err := i.remove(ctx, plan, failed, served); err != nil {
		failed[""] = err
	}
	return failed
}

// remove removes what a plan does not require. What is retained stays, and what could not be installed otherwise.
func (i *Installer) remove(ctx context.Context, plan Plan, failed admission.Failures, served bool) error {
	policies, webhooks := map[string]bool{}, map[string]bool{}
	for _, p := range plan.Policies {
		policies[Name(p)] = true
	}
	for _, p := range plan.Webhooks {
		webhooks[Name(p)] = true
	}
	for _, keep := range []map[string]bool{policies, webhooks} {
		for name := range plan.Retained {
			keep[name] = true
		}
		for name := range failed {
			keep[name] = true
		}
	}
	err := i.options.Objects.RemoveExcept(ctx, webhooks, namePrefix, &admissionv1.ValidatingWebhookConfigurationList{})
	if err != nil || !served {
		return err
	}
	return i.options.Objects.RemoveExcept(ctx, policies, namePrefix,
		&admissionv1.ValidatingAdmissionPolicyBindingList{}, &admissionv1.ValidatingAdmissionPolicyList{})
}

// bound drops policies beyond what is installed, and says so.
func (plan *Plan) bound(failed admission.Failures) {
	most := admission.MaxPolicies
	for _, list := range []*[]*policyset.Policy{&plan.Policies, &plan.Webhooks} {
		slices.SortFunc(*list, func(a, b *policyset.Policy) int { return cmp.Compare(a.Key.Name, b.Key.Name) })
		for _, p := range (*list)[min(most, len(*list)):] {
			failed[Name(p)] = errMany
		}
		*list = (*list)[:min(most, len(*list))]
		most -= len(*list)
	}
}

// installed reports whether the API server has ValidatingAdmissionPolicies.
func (i *Installer) installed(ctx context.Context) (bool, error) {
	err := i.options.Objects.Client().List(ctx, &admissionv1.ValidatingAdmissionPolicyList{}, client.Limit(1))
	switch {
	case admission.IsMissingType(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("list ValidatingAdmissionPolicies: %w", err)
	default:
		return true, nil
	}
}

func (i *Installer) installPolicy(ctx context.Context, plan Plan, p *policyset.Policy, user string) error {
	objects := i.options.Objects
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: Name(p)}}
	if err := objects.Ensure(ctx, policy, func() {
		policy.Spec = plan.policySpec(p, i.options.Versions, objects.ExemptNamespaces(), user, i.collector())
	}); err != nil {
		return err
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: Name(p)}}
	return objects.Ensure(ctx, binding, func() { binding.Spec = bindingSpec(p, objects.Parameter()) })
}

// installWebhook installs the webhook for a policy, in a configuration of its own: one that the API server rejects does not
// affect the others.
func (i *Installer) installWebhook(ctx context.Context, p *policyset.Policy, fingerprint, user string) error {
	if i.options.Webhook == nil {
		return errNoWebhook
	}
	config, ok := i.options.Webhook.At(Path + fingerprint)
	if !ok {
		return admission.ErrNoCertificate
	}
	objects := i.options.Objects
	configuration := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: Name(p)}}
	return objects.Ensure(ctx, configuration, func() {
		configuration.Webhooks = []admissionv1.ValidatingWebhook{webhookOf(p, i.options.Versions, config, objects.ExemptNamespaces(), user, i.collector())}
	})
}
