package modules

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// A client that asks for Orphan has another collector drop the references to the
// object at once, by patches, which nobody is asked about as what they are. So where a
// policy overrides what clients ask for, such a delete is refused when it comes in, by a
// ValidatingAdmissionPolicy for each, disarmed as those that place holds are.
const refusalPrefix = "gleaner-override"

var (
	errNoRefusals = errors.New("this API server has no ValidatingAdmissionPolicies, which Kubernetes has from 1.30 on")

	errManyRefusals = fmt.Errorf("more than %d policies override what clients ask for: write one with more resources in place of several", mostAdmissionPolicies)
)

// overrides reports whether what clients ask for explicitly is not done for the policy.
func (p *policyState) overrides() bool { return p.holds() && p.policy.Override }

// mayOverride reports whether it has to be asked, once somebody else deletes a dependent,
// if the policy overrides what its owner's client asked for. One that can't be asked
// holds that.
func (p *policyState) mayOverride() bool {
	return p.policy.Enforce && p.policy.Override && p.policy.Answers(hostabi.HookPropagate)
}

// refuses reports whether deletes are refused for the policy that ask for Orphan. One
// that decides just that has nothing against them.
func (p *policyState) refuses() bool {
	if f := p.spec.Fixed; f != nil && f.Propagate != nil && string(f.Propagate.Decision) == string(hostabi.DecisionOrphan) && len(f.Propagate.Dependents) == 0 {
		return false
	}
	return p.overrides()
}

// refusalName is the name of the admission policy for a policy, which may not be longer
// than that of one.
func (p *policyState) refusalName() string {
	name := refusalPrefix + "-" + p.key.Name
	if p.key.Namespace != "" {
		name = refusalPrefix + "." + p.key.Namespace + "." + p.key.Name
	}
	const longest = 253
	if len(name) > longest {
		sum := sha256.Sum256([]byte(name))
		name = refusalPrefix + ".long." + hex.EncodeToString(sum[:])
	}
	return name
}

// placeRefusals has the API server refuse what policies override and nobody could undo.
func (k *Keeper) placeRefusals(ctx context.Context, b *build) lateness {
	late := lateness{}
	wanted := map[string]*policyState{}
	for _, p := range b.policies {
		if p.refuses() {
			wanted[p.refusalName()] = p
		}
	}
	if len(wanted) > mostAdmissionPolicies {
		clear(wanted)
		late[""] = errManyRefusals
	}
	keep := map[string]bool{}
	for name := range wanted {
		keep[name] = true
	}
	for _, p := range b.policies {
		if !p.loading.IsZero() && p.mayOverride() { // whether it is wanted is not known yet
			keep[p.refusalName()] = true
		}
	}
	err := k.removeOthers(ctx, keep, refusalPrefix,
		&admissionv1.ValidatingAdmissionPolicyBindingList{}, &admissionv1.ValidatingAdmissionPolicyList{})
	if lacks(err) {
		err = errNoRefusals
	}
	if len(wanted) == 0 && errors.Is(err, errNoRefusals) {
		return late
	}
	if err == nil && len(wanted) != 0 {
		err = k.placeParameter(ctx)
	}
	if err != nil {
		late[""] = err
		return late
	}
	for name, p := range wanted {
		if err := k.placeRefusal(ctx, name, p); err != nil {
			late[name] = err
		}
	}
	return late
}

func (k *Keeper) placeRefusal(ctx context.Context, name string, p *policyState) error {
	user, err := k.whoAmI(ctx)
	if err != nil {
		return err
	}
	home, err := k.home(ctx)
	if err != nil {
		return err
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := k.ensure(ctx, policy, func() {
		own(policy)
		policy.OwnerReferences = home
		policy.Spec = p.refusal(k.options.Namespace, user, k.CollectorUser())
	}); err != nil {
		return err
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return k.ensure(ctx, binding, func() {
		own(binding)
		binding.OwnerReferences = home
		binding.Spec = admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ParamRef: k.parameter(), ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		}
	})
}

// notOrphan is false of a DELETE that asks for Orphan, by the name of today or by that
// of long ago.
const notOrphan = "!(has(request.options.propagationPolicy) && request.options.propagationPolicy == 'Orphan') && " +
	"!(has(request.options.orphanDependents) && request.options.orphanDependents)"

// refusal is the admission policy that refuses for a policy. Fields that the API server
// would fill in are filled in here, so that nothing differs when nothing has changed.
func (p *policyState) refusal(namespace, gleaner, collector string) admissionv1.ValidatingAdmissionPolicySpec {
	constraints := &admissionv1.MatchResources{
		MatchPolicy: ptr.To(admissionv1.Equivalent), NamespaceSelector: p.vetoedNamespaces(namespace), ObjectSelector: &metav1.LabelSelector{},
	}
	if p.objects != nil {
		constraints.ObjectSelector = p.objects.DeepCopy()
	}
	for _, rule := range p.policy.Rules {
		constraints.ResourceRules = append(constraints.ResourceRules,
			admissionv1.NamedRuleWithOperations{RuleWithOperations: deleting(rule.Groups, rule.Resources, p.scope())})
	}
	conditions := []admissionv1.MatchCondition{
		{Name: "gleaner.dev/not-by-gleaner", Expression: fmt.Sprintf("request.userInfo.username != %q", gleaner)},
		{Name: "gleaner.dev/not-by-the-collector", Expression: fmt.Sprintf("request.userInfo.username != %q", collector)},
	}
	for _, c := range p.conditions {
		// A policy's condition speaks of object, which is null in a DELETE.
		conditions = append(conditions, admissionv1.MatchCondition{
			Name: "policy/" + c.Name, Expression: "[oldObject].all(object, (" + c.Expression + "\n) == true)",
		})
	}
	return admissionv1.ValidatingAdmissionPolicySpec{
		ParamKind:        &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
		FailurePolicy:    ptr.To(admissionv1.Ignore),
		MatchConstraints: constraints, MatchConditions: conditions,
		Validations: []admissionv1.Validation{{
			Expression: notOrphan, Reason: ptr.To(metav1.StatusReasonForbidden),
			Message: fmt.Sprintf("%s decides what becomes of the dependents, whatever a client asks for: "+
				"delete without --cascade=orphan, or set explicit: Respect on the policy", p.policy),
		}},
	}
}
