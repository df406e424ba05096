package admission

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/policies"
)

// Prefixes of the names of admission objects.
const (
	holdPrefix    = "gleaner-hold-"
	attachPrefix  = "gleaner-attach-"
	archivePrefix = "gleaner-archive-"
)

// HoldName returns the name of the admission object that adds holds for a policy.
func HoldName(p *policyset.Policy) string { return holdPrefix + p.Key.Name }

// AttachName returns the name of the admission object that attaches the finalizer of a
// ClusterFinalizer or ClusterArchivePolicy.
func AttachName(d *policyset.Declaration) string {
	if d.Kind == v1alpha1.KindClusterArchivePolicy {
		return archivePrefix + d.Key.Name
	}
	return attachPrefix + d.Key.Name
}

// addition is a finalizer to be added to objects as they are created: a hold, one that a
// module serves, or one of an archive policy.
type addition struct {
	*policyset.Declaration
	name, finalizer string
	resources       []policies.Rule                       // whose objects get it
	rules           []admissionv1.NamedRuleWithOperations // of those that can be matched
}

// additions returns those of cluster-scoped policies, finalizers and archive policies. Those of
// namespaces are added after creation: their authors may not change the admission of anything.
func additions(s *policyset.Snapshot) []addition {
	var list []addition
	for _, p := range s.Policies {
		if p.Key.Namespace == "" && p.RequiresHold() {
			list = append(list, addition{Declaration: &p.Declaration, name: HoldName(p), finalizer: graph.Hold, resources: p.Policy.Rules})
		}
	}
	for f := range s.Served() {
		if f.Key.Namespace == "" && f.Finalizer.Attaches() {
			list = append(list, addition{Declaration: f.Declaration, name: AttachName(f.Declaration), finalizer: f.Finalizer.Entry, resources: f.Finalizer.Rules})
		}
	}
	return list
}

// retained returns the finalizers, by the names of admission objects, of resources whose
// modules are loading: whether they are required is not known yet. They stay as they are,
// if they are installed.
func retained(s *policyset.Snapshot) map[string]string {
	retained := map[string]string{}
	for _, p := range s.Policies {
		if p.Key.Namespace == "" && p.Policy.Enforce && !p.Loading.IsZero() {
			retained[HoldName(p)] = graph.Hold
		}
	}
	for _, f := range s.Finalizers {
		if f.Key.Namespace == "" && f.Finalizer.Attach && f.Policy.Enforce && !f.Finalizer.Deleting && !f.Loading.IsZero() {
			retained[AttachName(&f.Declaration)] = f.Finalizer.Entry
		}
	}
	return retained
}

// mutation adds a finalizer to an object, in CEL.
func mutation(finalizer string) string {
	return fmt.Sprintf(`has(object.metadata.finalizers) ?
  [JSONPatch{op: "add", path: "/metadata/finalizers/-", value: %[1]q}] :
  [JSONPatch{op: "add", path: "/metadata/finalizers", value: [%[1]q]}]`, finalizer)
}

// policySpec returns the admission policy that adds the finalizer, except in requests of a
// user. Fields that the API server would default are set, so that nothing differs when
// nothing has changed.
func (a addition) policySpec(user string, exempt metav1.LabelSelectorRequirement) admissionv1.MutatingAdmissionPolicySpec {
	spec := admissionv1.MutatingAdmissionPolicySpec{
		ParamKind:          &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
		FailurePolicy:      ptr.To(admissionv1.Ignore),
		ReinvocationPolicy: admissionv1.IfNeededReinvocationPolicy,
		Mutations: []admissionv1.Mutation{{
			PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: mutation(a.finalizer)},
		}},
		MatchConstraints: &admissionv1.MatchResources{
			MatchPolicy:       ptr.To(admissionv1.Equivalent),
			NamespaceSelector: &metav1.LabelSelector{},
			ObjectSelector:    &metav1.LabelSelector{},
			ResourceRules:     a.rules,
		},
		MatchConditions: []admissionv1.MatchCondition{
			{Name: "gleaner.dev/not-by-gleaner", Expression: fmt.Sprintf("request.userInfo.username != %q", user)},
			{Name: "gleaner.dev/not-being-deleted", Expression: "!has(object.metadata.deletionTimestamp)"},
			{Name: "gleaner.dev/not-held", Expression: fmt.Sprintf("!has(object.metadata.finalizers) || !(%q in object.metadata.finalizers)", a.finalizer)},
		},
	}
	if s := a.NamespaceSelector; s != nil {
		spec.MatchConstraints.NamespaceSelector = s.DeepCopy()
	}
	if s := a.ObjectSelector; s != nil {
		spec.MatchConstraints.ObjectSelector = s.DeepCopy()
	}
	selector := spec.MatchConstraints.NamespaceSelector
	selector.MatchExpressions = append(selector.MatchExpressions, exempt)
	for _, c := range a.MatchConditions {
		spec.MatchConditions = append(spec.MatchConditions, admissionv1.MatchCondition{Name: "policy/" + c.Name, Expression: "(" + c.Expression + "\n) == true"})
	}
	return spec
}
