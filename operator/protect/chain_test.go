package protect

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/policyset/policysettest"
	"github.com/gleaner-dev/gleaner/policies"
)

// An admission policy for each fixed policy, evaluated on its own, decides the same as the policies in order do.
func TestAdmissionPolicies_DecideAsTheChain(t *testing.T) {
	environment := newCEL(t)
	denied, exceptions := 0, 0
	for seed := range uint64(150) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // reproducible
		resources := make([]client.Object, 0, 4)
		for i := range 1 + random.IntN(4) {
			resources = append(resources, policy(fmt.Sprint("p", i), func(s *v1alpha1.GCPolicySpec) { randomSpec(random, s) }))
		}
		s := policysettest.New(t, nil, resources...).Settle()
		plan := PlanOf(s)
		for range 20 {
			o := randomObject(random)
			want := o.decide(t, s)
			got := environment.decide(t, plan, o)
			if got != (want == hostabi.DecisionDeny) {
				t.Fatalf("seed %d: %+v: denied %t, policies decide %q\n%s", seed, o, got, want, describe(s))
			}
			if got {
				denied++
			} else if want == hostabi.DecisionAllow {
				exceptions++
			}
		}
	}
	if denied < 100 || exceptions < 100 {
		t.Errorf("%d denied, %d allowed by a policy: the test shows too little", denied, exceptions)
	}
}

func randomSpec(random *rand.Rand, s *v1alpha1.GCPolicySpec) {
	s.Priority, s.Overridable = int32(random.IntN(2)), random.IntN(4) == 0
	decide([]v1alpha1.ProtectDecision{v1alpha1.ProtectAllow, v1alpha1.ProtectDeny, v1alpha1.ProtectDeny, v1alpha1.ProtectAbstain}[random.IntN(4)])(s)
	s.Resources = nil
	for range 1 + random.IntN(2) {
		s.Resources = append(s.Resources, v1alpha1.ResourceRule{
			APIGroups: [][]string{{""}, {"apps"}, {"", "apps"}, {"*"}}[random.IntN(4)],
			Resources: [][]string{{"a"}, {"b"}, {"a", "b"}, {"*"}}[random.IntN(4)],
		})
	}
	if random.IntN(3) == 0 {
		s.ObjectSelector = randomSelector(random)
	}
	if random.IntN(3) == 0 {
		s.NamespaceSelector = randomSelector(random)
	}
	if random.IntN(3) == 0 {
		s.MatchConditions = []v1alpha1.MatchCondition{{Name: "m", Expression: "object.metadata.name == 'x' // x"}}
	}
}

func randomSelector(random *rand.Rand) *metav1.LabelSelector {
	if random.IntN(3) == 0 {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"k": []string{"v", ""}[random.IntN(2)]}}
	}
	r := metav1.LabelSelectorRequirement{Key: "k", Operator: []metav1.LabelSelectorOperator{
		metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
	}[random.IntN(4)]}
	if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
		r.Values = [][]string{{"v"}, {"v", "w"}, {""}}[random.IntN(3)]
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{r}}
}

// object is an object that a user deletes.
type object struct {
	resource          schema.GroupResource
	name              string
	namespaced        bool
	labels, namespace labels.Set
}

func randomObject(random *rand.Rand) object {
	set := func() labels.Set {
		return []labels.Set{nil, {"k": "v"}, {"k": "w"}, {"k": ""}, {"other": "v"}}[random.IntN(5)]
	}
	o := object{
		resource: schema.GroupResource{Group: []string{"", "apps"}[random.IntN(2)], Resource: []string{"a", "b", "c"}[random.IntN(3)]},
		name:     []string{"x", "y"}[random.IntN(2)], namespaced: random.IntN(3) != 0, labels: set(),
	}
	if o.namespaced {
		o.namespace = set()
	}
	return o
}

func (o object) document() map[string]any {
	metadata := map[string]any{"name": o.name}
	if o.labels != nil {
		metadata["labels"] = map[string]string(o.labels)
	}
	return map[string]any{"metadata": metadata}
}

// decide returns the first decision of the policies in order.
func (o object) decide(t *testing.T, s *policyset.Snapshot) hostabi.Decision {
	t.Helper()
	namespace := ""
	if o.namespaced {
		namespace = "shop"
	}
	for p := range s.Set.Candidates(hostabi.HookProtect, o.resource, namespace) {
		if p.NamespaceSelector != nil && !p.NamespaceSelector.Matches(o.namespace) || p.ObjectSelector != nil && !p.ObjectSelector.Matches(o.labels) {
			continue
		}
		if p.Matches != nil {
			met, err := p.Matches(t.Context(), o.document())
			if err != nil {
				t.Fatal(err)
			}
			if !met {
				continue
			}
		}
		v, err := p.Evaluator.Evaluate(t.Context(), hostabi.Request{Hook: hostabi.HookProtect})
		if err != nil {
			t.Fatal(err)
		}
		if v.Decision != hostabi.DecisionAbstain {
			return v.Decision
		}
	}
	return hostabi.DecisionAllow
}

// celEnv evaluates expressions as the API server does.
type celEnv struct {
	env      *cel.Env
	programs map[string]cel.Program
}

func newCEL(t *testing.T) *celEnv {
	t.Helper()
	version := environment.DefaultCompatibilityVersion()
	set, err := environment.MustBaseEnvSet(version).Extend(environment.VersionedOptions{IntroducedVersion: version, EnvOptions: []cel.EnvOption{
		cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType), cel.Variable("namespaceObject", cel.DynType),
		cel.Variable("request", cel.DynType), cel.Variable("variables", cel.DynType),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return &celEnv{set.NewExpressionsEnv(), map[string]cel.Program{}}
}

func (e *celEnv) eval(t *testing.T, expression string, in map[string]any) any {
	t.Helper()
	program, ok := e.programs[expression]
	if !ok {
		tree, issues := e.env.Compile(expression)
		if issues.Err() != nil {
			t.Fatalf("%s: %v", expression, issues.Err())
		}
		var err error
		if program, err = e.env.Program(tree); err != nil {
			t.Fatal(err)
		}
		e.programs[expression] = program
	}
	out, _, err := program.Eval(in)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return out.Value()
}

// decide reports whether the admission policies of a plan deny a request.
func (e *celEnv) decide(t *testing.T, plan Plan, o object) bool {
	t.Helper()
	for _, p := range plan.Policies {
		spec := plan.policySpec(p, func(schema.GroupResource) string { return "v1" }, metav1.LabelSelectorRequirement{Key: "exempt", Operator: metav1.LabelSelectorOpDoesNotExist}, "gleaner")
		if o.matches(t, spec.MatchConstraints) && e.denies(t, spec, o) {
			return true
		}
	}
	return false
}

func (e *celEnv) denies(t *testing.T, spec admissionv1.ValidatingAdmissionPolicySpec, o object) bool {
	t.Helper()
	in := map[string]any{
		"object": nil, "oldObject": o.document(), "namespaceObject": nil,
		"request": map[string]any{
			"resource": map[string]any{"group": o.resource.Group, "resource": o.resource.Resource},
			"userInfo": map[string]any{"username": "alice", "groups": []string{"system:authenticated"}},
		},
	}
	if o.namespaced {
		in["namespaceObject"] = map[string]any{"metadata": map[string]any{"labels": map[string]string(o.namespace)}}
	}
	for _, c := range spec.MatchConditions {
		if e.eval(t, c.Expression, in) != true {
			return false
		}
	}
	values := map[string]any{}
	for _, v := range spec.Variables {
		values[v.Name] = e.eval(t, v.Expression, in)
	}
	in["variables"] = values
	return e.eval(t, spec.Validations[0].Expression, in) != true
}

// matches reports whether the API server calls an admission policy for an object.
func (o object) matches(t *testing.T, m *admissionv1.MatchResources) bool {
	t.Helper()
	selects := slices.ContainsFunc(m.ResourceRules, func(r admissionv1.NamedRuleWithOperations) bool {
		named, _ := policies.Rule{Groups: r.APIGroups, Resources: r.Resources}.Selects(o.resource)
		return named && (*r.Scope == admissionv1.AllScopes || o.namespaced)
	})
	for selector, set := range map[*metav1.LabelSelector]labels.Set{m.ObjectSelector: o.labels, m.NamespaceSelector: o.namespace} {
		compiled, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		if selector == m.NamespaceSelector && !o.namespaced {
			continue // the API server does not apply it
		}
		selects = selects && compiled.Matches(set)
	}
	return selects
}

func describe(s *policyset.Snapshot) string {
	var b strings.Builder
	for _, p := range s.Policies {
		fmt.Fprintf(&b, "%s: %+v %s\n", p.Policy, p.Spec, p.Spec.Fixed.Protect.Decision)
	}
	return b.String()
}

func TestRequests_OfSystemComponentsAreExempt(t *testing.T) {
	e := newCEL(t)
	for user, want := range map[string]bool{
		"alice": true, "system:admin": true, "system:serviceaccount:shop:kube-system": true, "system:serviceaccount:kube-systems:a": true,
		"system:serviceaccount:kube-system:generic-garbage-collector": false, "system:kube-controller-manager": false, "gleaner": false, "collector": false,
	} {
		got := e.eval(t, byUser("gleaner", "collector", ""), map[string]any{"request": map[string]any{"userInfo": map[string]any{"username": user}}})
		if got != want {
			t.Errorf("%s: %v", user, got)
		}
	}
	kubelet := map[string]any{"request": map[string]any{"userInfo": map[string]any{"username": "system:node:a", "groups": []string{"system:nodes"}}}}
	if e.eval(t, byUser(), kubelet) != false {
		t.Error("a kubelet is no exception")
	}
}
