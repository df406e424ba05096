package modules

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/source"
)

// keeper reads resources from memory, and writes none.
func keeper(t *testing.T, change func(*Options), resources ...client.Object) *Keeper {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{
		Config: &rest.Config{Host: "127.0.0.1:0"}, Namespace: "gleaner-system", Log: testr.New(t), Now: time.Now,
		Absent:   func(context.Context, schema.GroupKind) (bool, error) { return false, nil },
		Serves:   func(schema.GroupResource) (served, namespaced bool) { return true, true },
		Tell:     func(*corev1.ObjectReference, string, string, string) {},
		Progress: func(types.UID) Progress { return Progress{} },
		Held:     func() map[Place]int { return nil },

		CheckGrants: func(policies.Grants) error { return nil },
		Source:      fake.NewClientBuilder().WithScheme(scheme).WithObjects(resources...).Build(),
		Leads:       func() bool { return false },
		OnChange:    func() {},
	}
	if change != nil {
		change(&o)
	}
	k, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// once reads all resources once.
func once(t *testing.T, resources ...client.Object) (*Keeper, *build) {
	t.Helper()
	k := keeper(t, nil, resources...)
	t.Cleanup(func() {
		k.engines.close()
		k.fetcher.Close()
	})
	b, err := k.rebuild(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range b.policies {
		k.describe(b, p)
	}
	for _, f := range b.finalizers {
		k.describeFinalizer(f, Progress{})
	}
	return k, b
}

func configMaps() []v1alpha1.ResourceRule {
	return []v1alpha1.ResourceRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}}}
}

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), Generation: 1}
}

// looking is a policy that looks at objects, and holds them.
func looking(account *v1alpha1.ServiceAccountReference) v1alpha1.GCPolicySpec {
	return v1alpha1.GCPolicySpec{
		Resources: configMaps(), Mode: v1alpha1.ModeEnforce, ServiceAccount: account,
		MatchConditions: []v1alpha1.MatchCondition{{Name: "any", Expression: "true"}},
		Fixed:           &v1alpha1.FixedVerdicts{Propagate: &v1alpha1.FixedVerdict{Decision: "Orphan"}},
	}
}

// has requires a condition of some resource, whose message has a part.
func has(t *testing.T, list []metav1.Condition, kind string, is metav1.ConditionStatus, reason, part string) {
	t.Helper()
	c := meta.FindStatusCondition(list, kind)
	if c == nil || c.Status != is || c.Reason != reason || !strings.Contains(c.Message, part) {
		t.Errorf("%s: got %+v, want %s, %s, and a message with %q", kind, c, is, reason, part)
	}
}

func TestAPolicyWhoseConditionsNobodyMayReadForIsNotAccepted(t *testing.T) {
	const advice = "write serviceAccount: {name: …}"
	_, b := once(t,
		&v1alpha1.GCPolicy{ObjectMeta: named("shop", "p"), Spec: looking(nil)},
		&v1alpha1.Finalizer{ObjectMeta: named("shop", "f"), Spec: v1alpha1.FinalizerSpec{
			Resources: configMaps(), MatchConditions: looking(nil).MatchConditions, Mode: v1alpha1.ModeEnforce,
		}},
	)
	has(t, b.policies[0].status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionFalse, "Invalid", advice)
	has(t, b.policies[0].status.Conditions, v1alpha1.ConditionEnforcing, metav1.ConditionFalse, "NotReady", "are kept")
	has(t, b.finalizers[0].status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionFalse, "Invalid", advice)
	if p := b.policies[0].policy; p.Asker != nil || !strings.Contains(p.NotReady, advice) {
		t.Errorf("it is asked, or does not say why not: %q", p.NotReady)
	}
}

func TestConditionsAreAcceptedWhereSomebodyReadsForThem(t *testing.T) {
	_, b := once(t,
		&v1alpha1.GCPolicy{ObjectMeta: named("shop", "p"), Spec: looking(&v1alpha1.ServiceAccountReference{Name: "reader"})},
		&v1alpha1.ClusterGCPolicy{ObjectMeta: named("", "c"), Spec: looking(nil)}, // Gleaner itself
	)
	for _, p := range b.policies {
		has(t, p.status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionTrue, "Accepted", "")
		has(t, p.status.Conditions, v1alpha1.ConditionEnforcing, metav1.ConditionTrue, "Enforcing", "")
	}
}

func inline(name string) *v1alpha1.ClusterPolicyModule {
	text := keepText
	return &v1alpha1.ClusterPolicyModule{ObjectMeta: named("", name), Spec: v1alpha1.PolicyModuleSpec{Rego: &v1alpha1.RegoSource{Inline: &text}}}
}

func deciding(name, module string, onFault v1alpha1.OnFault) *v1alpha1.ClusterGCPolicy {
	return &v1alpha1.ClusterGCPolicy{ObjectMeta: named("", name), Spec: v1alpha1.GCPolicySpec{
		Resources: configMaps(), Mode: v1alpha1.ModeEnforce, OnFault: onFault, Module: &v1alpha1.ModuleReference{Name: module, Digest: digestOf(keepText)},
	}}
}

// inForce are the policies of a set by name.
func inForce(set *policies.Set) map[string]*policies.Policy {
	by := map[string]*policies.Policy{}
	for _, p := range set.All() {
		by[p.Name] = p
	}
	return by
}

func TestPoliciesAreInForceBeforeModulesAreCompiled(t *testing.T) {
	compile := make(chan struct{})
	changes := make(chan struct{}, 10)
	k := keeper(t, func(o *Options) {
		o.OnChange = func() { changes <- struct{}{} }
		o.Given = func(string) ([]source.File, bool) {
			<-compile // for as long as it takes
			return nil, false
		}
	}, inline("slow"), deciding("hold", "slow", v1alpha1.OnFaultHold), deciding("default", "slow", v1alpha1.OnFaultDefault),
		&v1alpha1.ClusterGCPolicy{ObjectMeta: named("", "fixed"), Spec: looking(nil)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	<-changes
	early := inForce(k.Policies())
	for _, name := range []string{"hold", "default"} {
		p := early[name]
		if p == nil || p.Asker != nil || p.OnFault != policies.OnFaultHold || !p.Enforce || !p.Unsure || !strings.Contains(p.NotReady, "being fetched and compiled") {
			t.Errorf("%s is not kept to what it selects while its module is compiled: %+v", name, p)
		}
	}
	if p := early["fixed"]; p == nil || p.Asker == nil || p.Unsure {
		t.Errorf("what needs no module waits for one: %+v", p)
	}
	if _, known := k.Finalizers(); known {
		t.Error("finalizers, which all need a module, are taken for known")
	}

	close(compile)
	<-changes
	late := inForce(k.Policies())
	for _, name := range []string{"hold", "default", "fixed"} {
		if p := late[name]; p == nil || p.Asker == nil {
			t.Errorf("%s is not ready once its module is: %+v", name, p)
		}
	}
	if late["default"].OnFault != policies.OnFaultDefault {
		t.Error("onFault: Default is forgotten once the module is compiled")
	}
}

// A server that does not answer keeps a module from being fetched for a minute, again
// and again.
func TestANewPolicyDoesNotWaitForTheModulesOfOthers(t *testing.T) {
	k, _ := once(t, inline("there"), deciding("old", "there", v1alpha1.OnFaultHold))
	old := inForce(k.Policies())["old"]
	var early map[string]*policies.Policy
	k.options.Given = func(module string) ([]source.File, bool) {
		if module == "ClusterPolicyModule slow" { // the others are asked for at the same time
			early = inForce(k.Policies())
		}
		return nil, false
	}
	for _, o := range []client.Object{
		inline("slow"), deciding("slow", "slow", v1alpha1.OnFaultDefault), deciding("new", "there", v1alpha1.OnFaultHold),
		&v1alpha1.ClusterGCPolicy{ObjectMeta: named("", "fixed"), Spec: looking(nil)},
	} {
		if err := k.source.(client.Client).Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := k.rebuild(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fixed", "new"} {
		if p := early[name]; p == nil || p.Asker == nil {
			t.Errorf("%s is not in force while another's module is fetched: %+v", name, p)
		}
	}
	if p := early["slow"]; p == nil || p.Asker != nil || p.OnFault != policies.OnFaultHold {
		t.Errorf("what selects objects by a module that is still fetched does not keep them: %+v", p)
	}
	if early["old"] != old {
		t.Error("a policy that was in force is not left as it was")
	}
}

// The policies that stay as they are go by the modules as they were.
func TestAReplicaIsUpToAChangedModuleOnceThatIsThere(t *testing.T) {
	k, _ := once(t, inline("there"), deciding("old", "there", v1alpha1.OnFaultHold))
	for _, c := range []struct {
		claim   string
		created []client.Object
		early   bool
	}{
		{"a policy without a module", []client.Object{&v1alpha1.ClusterGCPolicy{ObjectMeta: named("", "fixed"), Spec: looking(nil)}}, true},
		{"a module, and a policy that goes by it", []client.Object{inline("new"), deciding("by-new", "new", v1alpha1.OnFaultHold)}, false},
		{"another policy that goes by it", []client.Object{deciding("by-new-too", "new", v1alpha1.OnFaultHold)}, true},
	} {
		for _, o := range c.created {
			if err := k.source.(client.Client).Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		b := &build{}
		if err := k.read(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		state, early := stateOf(b), false
		k.options.Given = func(module string) ([]source.File, bool) {
			if module == "ClusterPolicyModule there" { // the others are asked for at the same time
				early = k.UpTo(state)
			}
			return nil, false
		}
		if _, err := k.rebuild(t.Context()); err != nil {
			t.Fatal(err)
		}
		if early != c.early {
			t.Errorf("with %s it is up to that while modules are fetched: %t, want %t", c.claim, early, c.early)
		}
		if !k.UpTo(state) {
			t.Errorf("with %s it is not up to what it has read", c.claim)
		}
	}
}

func TestAModuleThatComesLaterLeavesTheSetAsItIsUntilThen(t *testing.T) {
	k, b := once(t, inline("there"), deciding("p", "there", v1alpha1.OnFaultHold))
	before := k.Policies()
	k.begin(t.Context(), b, nil)
	if k.Policies() != before {
		t.Error("a set that is complete was replaced by one whose modules are not there")
	}
}

func TestAPolicyWhoseAccountMayNotReadSaysThatNothingIsHeld(t *testing.T) {
	k, b := once(t, &v1alpha1.GCPolicy{ObjectMeta: named("shop", "p"), Spec: looking(&v1alpha1.ServiceAccountReference{Name: "reader"})})
	now := time.Now()
	k.options.Now = func() time.Time { return now }
	p := b.policies[0]
	k.Withheld(p.policy.String(), "forbidden")
	k.describe(b, p)
	has(t, p.status.Conditions, v1alpha1.ConditionEnforcing, metav1.ConditionFalse, "NotHeld", "grant it get on what resources names; forbidden")
	now = now.Add(withheldLife + time.Second) // nobody has been refused since
	k.describe(b, p)
	has(t, p.status.Conditions, v1alpha1.ConditionEnforcing, metav1.ConditionTrue, "Enforcing", "")
}
