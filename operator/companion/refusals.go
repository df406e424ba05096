package companion

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/policyset"
)

// If a client deletes with Orphan, the built-in collector removes the references to the
// object at once, by patches that no webhook can tell from others. So where a policy
// overrides what clients ask for, such a delete is rejected when it comes in, by a
// ValidatingAdmissionPolicy for each policy.
const refusalPrefix = "gleaner-override"

var (
	errNoRefusals = errors.New("this API server has no ValidatingAdmissionPolicies, which Kubernetes has from 1.30 on")

	errManyRefusals = fmt.Errorf("more than %d policies override what clients ask for: write one with more resources in place of several", admission.MaxPolicies)
)

// mayOverride reports whether a policy has to be evaluated when a dependent is deleted,
// since it may override what the client that deleted its owner asked for. One that can't
// be evaluated holds the dependent.
func mayOverride(p *policyset.Policy) bool {
	return p.Policy.Enforce && p.Policy.OverrideExplicit && p.Policy.HasHook(hostabi.HookPropagate)
}

// Refuses reports whether deletes with Orphan are rejected because of a policy. One that
// decides Orphan itself has nothing against them.
func Refuses(p *policyset.Policy) bool {
	if f := p.Spec.Fixed; f != nil && f.Propagate != nil && string(f.Propagate.Decision) == string(hostabi.DecisionOrphan) && len(f.Propagate.Dependents) == 0 {
		return false
	}
	return p.RequiresHold() && p.Policy.OverrideExplicit
}

// RefusalName returns the name of the admission policy that rejects deletes because of a
// policy.
func RefusalName(p *policyset.Policy) string {
	name := refusalPrefix + "-" + p.Key.Name
	if p.Key.Namespace != "" {
		name = refusalPrefix + "." + p.Key.Namespace + "." + p.Key.Name
	}
	const maxName = 253
	if len(name) > maxName {
		sum := sha256.Sum256([]byte(name))
		name = refusalPrefix + ".long." + hex.EncodeToString(sum[:])
	}
	return name
}

// installRefusals has the API server reject requests that policies override and that could
// not be undone.
func (c *Companion) installRefusals(ctx context.Context, s *policyset.Snapshot) admission.Failures {
	failed := admission.Failures{}
	wanted, keep := map[string]*policyset.Policy{}, map[string]bool{}
	for _, p := range s.Policies {
		if Refuses(p) {
			wanted[RefusalName(p)] = p
		}
	}
	if len(wanted) > admission.MaxPolicies {
		clear(wanted)
		failed[""] = errManyRefusals
	}
	for name := range wanted {
		keep[name] = true
	}
	for _, p := range s.Policies {
		if !p.Loading.IsZero() && mayOverride(p) { // whether it is required is not known yet
			keep[RefusalName(p)] = true
		}
	}
	objects := c.options.Objects
	err := objects.RemoveExcept(ctx, keep, refusalPrefix,
		&admissionv1.ValidatingAdmissionPolicyBindingList{}, &admissionv1.ValidatingAdmissionPolicyList{})
	if admission.IsMissingType(err) {
		err = errNoRefusals
	}
	if len(wanted) == 0 && errors.Is(err, errNoRefusals) {
		return failed
	}
	if err == nil && len(wanted) != 0 {
		err = objects.EnsureParameter(ctx)
	}
	if err != nil {
		failed[""] = err
		return failed
	}
	for name, p := range wanted {
		if err := c.installRefusal(ctx, name, p); err != nil {
			failed[name] = err
		}
	}
	return failed
}

func (c *Companion) installRefusal(ctx context.Context, name string, p *policyset.Policy) error {
	objects := c.options.Objects
	user, err := objects.User(ctx)
	if err != nil {
		return err
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := objects.Ensure(ctx, policy, func() { policy.Spec = c.refusal(p, user) }); err != nil {
		return err
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return objects.Ensure(ctx, binding, func() {
		binding.Spec = admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ParamRef: objects.Parameter(), ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		}
	})
}

// notOrphan is false for a DELETE with Orphan, by the current or the deprecated option.
const notOrphan = "!(has(request.options.propagationPolicy) && request.options.propagationPolicy == 'Orphan') && " +
	"!(has(request.options.orphanDependents) && request.options.orphanDependents)"

// refusal returns the admission policy that rejects deletes because of a policy, except
// those by Gleaner and by the collector. Fields that the API server would default are set,
// so that nothing differs when nothing has changed.
func (c *Companion) refusal(p *policyset.Policy, gleaner string) admissionv1.ValidatingAdmissionPolicySpec {
	constraints := &admissionv1.MatchResources{
		MatchPolicy: ptr.To(admissionv1.Equivalent), NamespaceSelector: c.within(p, p.NamespaceSelector), ObjectSelector: &metav1.LabelSelector{},
	}
	if p.ObjectSelector != nil {
		constraints.ObjectSelector = p.ObjectSelector.DeepCopy()
	}
	for _, rule := range p.Policy.Rules {
		constraints.ResourceRules = append(constraints.ResourceRules,
			admissionv1.NamedRuleWithOperations{RuleWithOperations: deleteRule(rule.Groups, rule.Resources, scopeOf(p))})
	}
	conditions := []admissionv1.MatchCondition{
		{Name: "gleaner.dev/not-by-gleaner", Expression: fmt.Sprintf("request.userInfo.username != %q", gleaner)},
		{Name: "gleaner.dev/not-by-the-collector", Expression: fmt.Sprintf("request.userInfo.username != %q", c.CollectorUser())},
	}
	for _, m := range p.MatchConditions {
		// The variable of a policy's condition is object, which is null in a DELETE.
		conditions = append(conditions, admissionv1.MatchCondition{
			Name: "policy/" + m.Name, Expression: "[oldObject].all(object, (" + m.Expression + "\n) == true)",
		})
	}
	return admissionv1.ValidatingAdmissionPolicySpec{
		ParamKind:        &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
		FailurePolicy:    ptr.To(admissionv1.Ignore),
		MatchConstraints: constraints, MatchConditions: conditions,
		Validations: []admissionv1.Validation{{
			Expression: notOrphan, Reason: ptr.To(metav1.StatusReasonForbidden),
			Message: fmt.Sprintf("%s decides what becomes of the dependents, whatever a client asks for: "+
				"delete without --cascade=orphan, or set explicitPropagation: Respect on the policy", p.Policy),
		}},
	}
}

func inNamespace(name string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{name}}
}
