// Package admission has the API server add finalizers to objects in the write that creates
// them: holds, and finalizers that are attached. It installs a MutatingAdmissionPolicy for
// each, or webhooks where the API server has none. What existed before, and what the
// admission policies miss, is written afterwards by others.
//
// It subscribes to snapshots of policies and publishes what it has installed.
package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/webhook"
)

// Options configure an Installer.
type Options struct {
	Objects   *Objects
	Snapshots *policyset.Publisher
	Gate      *gate.Gate // only the leader installs

	// Webhook replaces admission policies where the API server has none; nil: then
	// finalizers are only added after creation.
	Webhook *webhook.Endpoint

	// Serves reports whether a resource is served, as far as discovery has seen.
	Serves func(schema.GroupResource) (served, namespaced bool)

	Now func() time.Time
	Log logr.Logger
}

// Installer has the API server add finalizers. Create it with New.
type Installer struct {
	*Loop

	options Options
}

// New returns an Installer.
func New(o Options) *Installer {
	i := &Installer{options: o}
	i.Loop = NewLoop(LoopOptions{
		Snapshots: o.Snapshots, Gate: o.Gate, Webhook: o.Webhook, Now: o.Now, Log: o.Log,
		Failure: "Some finalizers are added only after objects were created",
	}, i)
	return i
}

// Inputs implements Installation.
func (i *Installer) Inputs(*policyset.Snapshot) string { return "" }

// Install implements Installation. Failures are no fault of the policies: the finalizers are added a moment after
// objects were created.
func (i *Installer) Install(ctx context.Context, s *policyset.Snapshot) Failures {
	failed := Failures{}
	var wanted []addition
	for _, a := range additions(s) {
		var err error
		if a.rules, err = i.rulesOf(ctx, a); err != nil {
			failed[a.name] = err
		}
		if len(a.rules) != 0 {
			wanted = append(wanted, a)
		}
	}
	if len(wanted) > MaxPolicies {
		wanted = nil
	}
	if err := i.installAll(ctx, wanted, retained(s), failed); err != nil {
		failed[""] = err
	}
	return failed
}

func (i *Installer) installAll(ctx context.Context, wanted []addition, retained map[string]string, failed Failures) error {
	keep := map[string]bool{}
	for name := range retained {
		keep[name] = true
	}
	for _, a := range wanted {
		keep[a.name] = true
	}
	objects := i.options.Objects
	err := objects.RemoveExcept(ctx, keep, "", &admissionv1.MutatingAdmissionPolicyBindingList{}, &admissionv1.MutatingAdmissionPolicyList{})
	if IsMissingType(err) {
		return i.installWebhooks(ctx, wanted, retained)
	}
	if err == nil {
		err = i.installWebhooks(ctx, nil, nil)
	}
	if err != nil || len(wanted) == 0 {
		return err
	}
	user, err := objects.User(ctx)
	if err != nil {
		return err
	}
	if err := objects.EnsureParameter(ctx); err != nil {
		return err
	}
	for _, a := range wanted {
		if err := i.installPolicy(ctx, a, user); err != nil {
			failed[a.name] = err
		}
	}
	return nil
}

// minTypeAge is how long a custom type must have existed before an admission policy
// changes its objects. The API server looks for new types every five seconds, and until
// then rejects, whatever the failure policy, creates of objects that a policy matches.
const minTypeAge = 10 * time.Second

// rulesOf returns the rules of an addition for the resources that can be matched. The
// error names the other ones.
func (i *Installer) rulesOf(ctx context.Context, a addition) (rules []admissionv1.NamedRuleWithOperations, err error) {
	for _, rule := range a.resources {
		for _, r := range rule.NamedResources() {
			young, readErr := i.isYoung(ctx, r)
			switch {
			case readErr != nil:
				err = errors.Join(err, readErr)
				continue
			case young:
				err = errors.Join(err, fmt.Errorf("%s is not served yet, or has been for less than %s", r, minTypeAge))
				continue
			}
			rules = append(rules, admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
				Rule: admissionv1.Rule{
					APIGroups: []string{r.Group}, APIVersions: []string{"*"}, Resources: []string{r.Resource}, Scope: ptr.To(admissionv1.AllScopes),
				},
			}})
		}
	}
	return rules, err
}

// isYoung reports whether a resource is not served, or is a custom one that was created
// less than minTypeAge ago.
func (i *Installer) isYoung(ctx context.Context, r schema.GroupResource) (bool, error) {
	if served, _ := i.options.Serves(r); !served {
		return true, nil
	}
	definition := &metav1.PartialObjectMetadata{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	err := i.options.Objects.client.Get(ctx, client.ObjectKey{Name: r.String()}, definition)
	if apierrors.IsNotFound(err) || r.Group == "" {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("read CustomResourceDefinition %s: %w", r, err)
	}
	return i.options.Now().Sub(definition.CreationTimestamp.Time) < minTypeAge, nil
}

func (i *Installer) installPolicy(ctx context.Context, a addition, user string) error {
	objects := i.options.Objects
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: a.name}}
	if err := objects.Ensure(ctx, policy, func() { policy.Spec = a.policySpec(user, objects.ExemptNamespaces()) }); err != nil {
		return err
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: a.name}}
	return objects.Ensure(ctx, binding, func() {
		binding.Spec = admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: a.name, ParamRef: objects.Parameter()}
	})
}
