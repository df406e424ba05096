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
		Source:      stuck{fake.NewClientBuilder().WithScheme(scheme).WithObjects(resources...).Build()},
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

// loading has the keeper's modules loaded until the test ends.
func loading(t *testing.T, k *Keeper) *Keeper {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	end := k.load(ctx)
	t.Cleanup(func() {
		cancel()
		end()
	})
	return k
}

// once reads all resources once, and waits until their modules are there.
func once(t *testing.T, resources ...client.Object) (*Keeper, *build) {
	t.Helper()
	k := loading(t, keeper(t, nil, resources...))
	b, err := k.settled(t.Context())
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

func TestAPolicyWhoseAccountMayNotReadSaysSo(t *testing.T) {
	k, b := once(t, &v1alpha1.GCPolicy{ObjectMeta: named("shop", "p"), Spec: looking(&v1alpha1.ServiceAccountReference{Name: "reader"})})
	now := time.Now()
	k.options.Now = func() time.Time { return now }
	p := b.policies[0]
	k.Withheld(p.policy.String(), "forbidden")
	k.describe(b, p)
	has(t, p.status.Conditions, v1alpha1.ConditionEnforcing, metav1.ConditionFalse, "ObjectWithheld", "grant its service account get on what resources names; forbidden")
	now = now.Add(withheldLife + time.Second) // nobody has been refused since
	k.describe(b, p)
	has(t, p.status.Conditions, v1alpha1.ConditionEnforcing, metav1.ConditionTrue, "Enforcing", "")
}

func TestStatus_SaysThatAPolicyHasTooMuchWritten(t *testing.T) {
	k, b := once(t, inline("m"), deciding("p", "m", v1alpha1.OnFaultHold))
	now := time.Now()
	k.options.Now = func() time.Time { return now }
	p := b.policies[0]
	k.Limited(p.policy.String())
	k.describe(b, p)
	has(t, p.status.Conditions, v1alpha1.ConditionEnforcing, metav1.ConditionTrue, "RateLimited", "change its state less often")
	now = now.Add(withheldLife + time.Second) // nothing was limited since
	k.describe(b, p)
	has(t, p.status.Conditions, v1alpha1.ConditionEnforcing, metav1.ConditionTrue, "Enforcing", "")
}

func TestAFinalizerWhoseAccountMayNotReadSaysSoUntilItsNextAttempt(t *testing.T) {
	k, b := once(t, inline("m"), &v1alpha1.Finalizer{ObjectMeta: named("shop", "f"), Spec: v1alpha1.FinalizerSpec{
		Resources: configMaps(), Module: v1alpha1.ModuleReference{Kind: "ClusterPolicyModule", Name: "m"},
		Mode: v1alpha1.ModeEnforce, ServiceAccount: &v1alpha1.ServiceAccountReference{Name: "reader"},
	}})
	now := time.Now()
	k.options.Now = func() time.Time { return now }
	f := b.finalizers[0]
	f.problem = problem{} // the module of this test answers another hook
	k.Withheld(f.policy.String(), "forbidden")
	k.forgetCounts(b)
	now = now.Add(retryMax)
	k.describeFinalizer(f, Progress{})
	has(t, f.status.Conditions, v1alpha1.ConditionEnforcing, metav1.ConditionFalse, "ObjectWithheld", "grant its service account get on what resources names; forbidden")
	now = now.Add(2 * time.Minute)
	k.describeFinalizer(f, Progress{})
	has(t, f.status.Conditions, v1alpha1.ConditionEnforcing, metav1.ConditionTrue, "Enforcing", "")
}
