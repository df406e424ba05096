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
	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/webhook"
)

// retryInterval is when an installation that failed is tried again.
const retryInterval = 10 * time.Second

// Late is why finalizers are added to objects only after they were created, by the name of
// the admission object; "" is about all.
type Late map[string]error

// Of returns the reason for one admission object; nil if there is none.
func (l Late) Of(name string) error {
	if l[""] != nil {
		return l[""]
	}
	return l[name]
}

// Status is what was installed.
type Status struct {
	Term     uint64 // of leadership, in which it was installed
	Revision uint64 // of the snapshot that it was installed for
	Late     Late   // may be of an earlier snapshot for what is not late any more
}

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

// Installer installs admission objects. Create it with New.
type Installer struct {
	options  Options
	status   latest.Value[Status]
	identity webhook.Identity // of the last installation; for the goroutine of Run
}

// New returns an Installer.
func New(o Options) *Installer { return &Installer{options: o} }

// Status returns what was installed last.
func (i *Installer) Status() *latest.Value[Status] { return &i.status }

// Run installs what each snapshot requires, while this replica leads, until ctx ends.
func (i *Installer) Run(ctx context.Context) error {
	tick := time.NewTicker(retryInterval)
	defer tick.Stop()
	for {
		snapshots, leading, identity := i.options.Snapshots.Changed(), i.options.Gate.Changed(), i.identityChanged()
		i.update(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-snapshots:
		case <-leading:
		case <-identity:
		case <-tick.C:
		}
	}
}

// identityChanged returns a channel that is closed when the webhook's certificate changes;
// nil without a webhook.
func (i *Installer) identityChanged() <-chan struct{} {
	if i.options.Webhook == nil {
		return nil
	}
	return i.options.Webhook.Identity.Changed()
}

func (i *Installer) currentIdentity() (none webhook.Identity) {
	if i.options.Webhook == nil {
		return none
	}
	return i.options.Webhook.Current()
}

// update installs what the current snapshot requires, unless that was done.
func (i *Installer) update(ctx context.Context) {
	s, state := i.options.Snapshots.Current(), i.options.Gate.State()
	if s == nil || !state.Leading {
		return
	}
	last, _ := i.status.Load()
	done := last.Term == state.Term && last.Revision == s.Revision && len(last.Late) == 0
	identity := i.currentIdentity()
	if done && identity.Equal(i.identity) {
		return
	}
	i.identity = identity
	late := i.install(ctx, s)
	if ctx.Err() != nil {
		return
	}
	if now := fmt.Sprint(late); len(late) != 0 && now != fmt.Sprint(last.Late) {
		i.options.Log.Info("Some finalizers are added only after objects were created", "why", now)
	}
	if last.Term != state.Term || last.Revision != s.Revision || fmt.Sprint(late) != fmt.Sprint(last.Late) {
		i.status.Store(Status{Term: state.Term, Revision: s.Revision, Late: late})
	}
}

// install has the API server add what the snapshot requires. Failures are no fault of the
// policies: the finalizers are added a moment later.
func (i *Installer) install(ctx context.Context, s *policyset.Snapshot) Late {
	late := Late{}
	var wanted []addition
	for _, a := range additions(s) {
		var err error
		if a.rules, err = i.rulesOf(ctx, a); err != nil {
			late[a.name] = err
		}
		if len(a.rules) != 0 {
			wanted = append(wanted, a)
		}
	}
	if len(wanted) > MaxPolicies {
		wanted = nil
	}
	if err := i.installAll(ctx, wanted, retained(s), late); err != nil {
		late[""] = err
	}
	return late
}

func (i *Installer) installAll(ctx context.Context, wanted []addition, retained map[string]string, late Late) error {
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
			late[a.name] = err
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
