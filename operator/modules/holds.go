package modules

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// Holds, and finalizers that are to be attached, are placed in the write that
// creates an object, by a MutatingAdmissionPolicy for each; what was there before,
// and what slips through, is written afterwards. The admission policies do nothing without the
// ConfigMap holdParameter, so that deleting the operator's namespace disarms them.
const (
	holdPrefix   = "gleaner-hold-"
	attachPrefix = "gleaner-attach-"

	// mostAdmissionPolicies bounds what every write of an object has to go through.
	// Beyond it, holds are placed after creation alone.
	mostAdmissionPolicies = 50
)

// addition is the mutation that puts a finalizer on an object, in CEL.
func addition(finalizer string) string {
	return fmt.Sprintf(`has(object.metadata.finalizers) ?
  [JSONPatch{op: "add", path: "/metadata/finalizers/-", value: %[1]q}] :
  [JSONPatch{op: "add", path: "/metadata/finalizers", value: [%[1]q]}]`, finalizer)
}

// placement is a finalizer that is to be put on objects as they are created: a hold,
// or one that a module serves.
type placement struct {
	*asking
	name, finalizer string
	rules           []admissionv1.NamedRuleWithOperations
}

// placements are those of the cluster's policies and finalizers. Those of namespaces
// come after creation, since whoever may write one there has no say about the
// admission of anything.
func (b *build) placements() []placement {
	var wanted []placement
	for _, p := range b.policies {
		if p.key.Namespace == "" && p.holds() {
			wanted = append(wanted, placement{asking: &p.asking, name: holdPrefix + p.key.Name, finalizer: graph.Hold})
		}
	}
	for _, f := range b.finalizers {
		if f.key.Namespace == "" && f.finalizer.Attaches() {
			wanted = append(wanted, placement{asking: &f.asking, name: attachPrefix + f.key.Name, finalizer: f.finalizer.Entry})
		}
	}
	return wanted
}

// lateness is why finalizers come to objects only after these were created, by the
// name of the placement; "" is about all.
type lateness map[string]error

// of is why those of one placement come late; nil: they don't.
func (l lateness) of(name string) error {
	if l[""] != nil {
		return l[""]
	}
	return l[name]
}

// placeHolds has the API server place holds, and what else is to be attached, for the
// resources in force. What fails is no fault of theirs: it comes a moment later.
func (k *Keeper) placeHolds(ctx context.Context, b *build) lateness {
	late := lateness{}
	var wanted []placement
	retained := b.retained()
	for _, p := range b.placements() {
		var err error
		if p.rules, err = k.placeable(ctx, p); err != nil {
			late[p.name] = err
		}
		if len(p.rules) != 0 {
			wanted = append(wanted, p)
		}
	}
	if len(wanted) > mostAdmissionPolicies {
		wanted = nil
	}
	if err := k.placeAll(ctx, wanted, retained, late); err != nil {
		late[""] = err
	}
	return late
}

// retained are the placements, with what they place, of resources whose modules are
// loading: nobody can tell yet whether they are wanted. They stay as they are, if they are
// there.
func (b *build) retained() map[string]string {
	retained := map[string]string{}
	for _, p := range b.policies {
		if p.key.Namespace == "" && p.policy.Enforce && !p.loading.IsZero() {
			retained[holdPrefix+p.key.Name] = graph.Hold
		}
	}
	for _, f := range b.finalizers {
		if f.key.Namespace == "" && f.finalizer.Attach && f.policy.Enforce && !f.finalizer.Removed && !f.loading.IsZero() {
			retained[attachPrefix+f.key.Name] = f.finalizer.Entry
		}
	}
	return retained
}

func (k *Keeper) placeAll(ctx context.Context, wanted []placement, retained map[string]string, late lateness) error {
	keep := map[string]bool{}
	for name := range retained {
		keep[name] = true
	}
	for _, p := range wanted {
		keep[p.name] = true
	}
	err := k.removeOthers(ctx, keep, "", &admissionv1.MutatingAdmissionPolicyBindingList{}, &admissionv1.MutatingAdmissionPolicyList{})
	if lacks(err) {
		return k.placeByWebhook(ctx, wanted, retained)
	}
	if err == nil {
		err = k.placeByWebhook(ctx, nil, nil)
	}
	if err != nil || len(wanted) == 0 {
		return err
	}
	user, err := k.whoAmI(ctx)
	if err != nil {
		return err
	}
	if err := k.placeParameter(ctx); err != nil {
		return err
	}
	for _, p := range wanted {
		if err := k.placeHold(ctx, p, user); err != nil {
			late[p.name] = err
		}
	}
	return nil
}

// settled is how long a custom type has to be there before an admission policy
// changes its objects. The API server looks for new types every five seconds, and
// until then it refuses, whatever the failure policy, to create objects of one that a
// policy matches.
const settled = 10 * time.Second

// placeable are the rules of a placement that can be had. The error names types
// that are too new.
func (k *Keeper) placeable(ctx context.Context, p placement) (rules []admissionv1.NamedRuleWithOperations, err error) {
	for _, rule := range p.policy.Rules {
		for _, r := range rule.Names() {
			young, lookErr := k.young(ctx, r)
			switch {
			case lookErr != nil:
				err = errors.Join(err, lookErr)
				continue
			case young:
				err = errors.Join(err, fmt.Errorf("%s is not served yet, or has been for less than %s", r, settled))
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

// young reports whether a resource is not there, or is a custom one that has come just
// now.
func (k *Keeper) young(ctx context.Context, r schema.GroupResource) (bool, error) {
	if served, _ := k.options.Serves(r); !served {
		return true, nil
	}
	definition := &metav1.PartialObjectMetadata{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	err := k.client.Get(ctx, client.ObjectKey{Name: r.String()}, definition)
	if apierrors.IsNotFound(err) || r.Group == "" {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("look at the definition of %s: %w", r, err)
	}
	return k.options.Now().Sub(definition.CreationTimestamp.Time) < settled, nil
}

func (k *Keeper) placeHold(ctx context.Context, p placement, user string) error {
	home, err := k.home(ctx)
	if err != nil {
		return err
	}
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: p.name}}
	if err := k.ensure(ctx, policy, func() {
		own(policy)
		policy.OwnerReferences = home
		policy.Spec = holdPolicy(p, user, k.options.Namespace)
		policy.Spec.MatchConstraints.ResourceRules = p.rules
	}); err != nil {
		return err
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policy.Name}}
	return k.ensure(ctx, binding, func() {
		own(binding)
		binding.OwnerReferences = home
		binding.Spec = admissionv1.MutatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name, ParamRef: k.parameter(),
		}
	})
}

// holdPolicy is the admission policy that does for a policy what the loop does.
// Fields that the API server would fill in are filled in here, so that nothing
// differs when nothing has changed.
func holdPolicy(p placement, user, namespace string) admissionv1.MutatingAdmissionPolicySpec {
	spec := admissionv1.MutatingAdmissionPolicySpec{
		ParamKind:          &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
		FailurePolicy:      ptr.To(admissionv1.Ignore),
		ReinvocationPolicy: admissionv1.IfNeededReinvocationPolicy,
		Mutations: []admissionv1.Mutation{{
			PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: addition(p.finalizer)},
		}},
		MatchConstraints: &admissionv1.MatchResources{
			MatchPolicy:       ptr.To(admissionv1.Equivalent),
			NamespaceSelector: &metav1.LabelSelector{},
			ObjectSelector:    &metav1.LabelSelector{},
		},
		MatchConditions: []admissionv1.MatchCondition{
			{Name: "gleaner.dev/not-by-gleaner", Expression: fmt.Sprintf("request.userInfo.username != %q", user)},
			{Name: "gleaner.dev/not-being-deleted", Expression: "!has(object.metadata.deletionTimestamp)"},
			{Name: "gleaner.dev/not-held", Expression: fmt.Sprintf("!has(object.metadata.finalizers) || !(%q in object.metadata.finalizers)", p.finalizer)},
		},
	}
	if s := p.namespaces; s != nil {
		spec.MatchConstraints.NamespaceSelector = s.DeepCopy()
	}
	if s := p.objects; s != nil {
		spec.MatchConstraints.ObjectSelector = s.DeepCopy()
	}
	selector := spec.MatchConstraints.NamespaceSelector
	selector.MatchExpressions = append(selector.MatchExpressions, exempt(namespace))
	for _, c := range p.conditions {
		spec.MatchConditions = append(spec.MatchConditions, admissionv1.MatchCondition{Name: "policy/" + c.Name, Expression: "(" + c.Expression + "\n) == true"})
	}
	return spec
}
