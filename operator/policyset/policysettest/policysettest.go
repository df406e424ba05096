// Package policysettest builds snapshots of policies from resources in memory, for tests.
package policysettest

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/testr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/modulestore/loader"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/source"
)

// Rego modules.
const (
	KeepText     = "package gleaner\n\ncollect := {\"decision\": \"Orphan\"}\n"
	FinalizeText = "package gleaner\n\nfinalize := {\"decision\": \"Done\"}\n"
)

// Fixture is a Publisher of resources in memory.
type Fixture struct {
	testing.TB
	Client    client.Client // of the resources
	Loader    *loader.Loader
	Publisher *policyset.Publisher
}

// Options of a Fixture.
type Options struct {
	Loader   loader.Options
	Rules    policyset.Rules
	Archiver policyset.Archiver // nil: there is no archive
	Client   client.Client      // nil: of the resources
}

// Scheme returns the scheme of Gleaner's and built-in types.
func Scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// New returns a Fixture. TestMain has to call serve.MainIfRequested, since modules are
// compiled in worker processes, which are this test again. Its modules are loaded until the test ends.
func New(t testing.TB, change func(*Options), resources ...client.Object) *Fixture {
	t.Helper()
	o := Options{
		Client: Stuck{fake.NewClientBuilder().WithScheme(Scheme(t)).WithObjects(resources...).Build()},
		Rules:  policyset.Rules{CheckGrants: func(policies.Grants) error { return nil }},
	}
	o.Loader.Log = testr.New(t.(*testing.T))
	if change != nil {
		change(&o)
	}
	o.Loader.Reader = o.Client
	modules, err := loader.New(o.Loader)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(modules.Start(t.Context()))
	publisher, err := policyset.NewPublisher(policyset.Options{
		Reader: o.Client, Store: modules.Store, Rules: o.Rules, Archiver: o.Archiver, Log: o.Loader.Log,
		Absent: func(context.Context, schema.GroupKind) (bool, error) { return false, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return &Fixture{TB: t, Client: o.Client, Loader: modules, Publisher: publisher}
}

// Settle returns the snapshot once nothing is loading.
func (f *Fixture) Settle() *policyset.Snapshot {
	f.Helper()
	s, err := f.Publisher.Settle(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	return s
}

// Update writes a resource with the next generation.
func (f *Fixture) Update(o client.Object) {
	f.Helper()
	o.SetGeneration(o.GetGeneration() + 1)
	if err := f.Client.Update(f.Context(), o); err != nil {
		f.Fatal(err)
	}
}

// Run runs the Publisher until the test ends. It sees changes when Refresh is called.
func (f *Fixture) Run() {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	done := make(chan error, 1)
	go func() { done <- f.Publisher.Run(ctx) }()
	f.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.Error(err)
		}
	})
}

// Settled returns the snapshot of resources once nothing is loading.
func Settled(t testing.TB, resources ...client.Object) *policyset.Snapshot {
	t.Helper()
	return New(t, nil, resources...).Settle()
}

// Endless is the name of a ConfigMap that Stuck never returns.
const Endless = "endless"

// Stuck does not answer about a ConfigMap named Endless.
type Stuck struct{ client.Client }

// Get implements client.Reader.
func (s Stuck) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if key.Name == Endless {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Client.Get(ctx, key, o, options...)
}

// Meta returns metadata with a UID and a generation.
func Meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), Generation: 1}
}

// ConfigMaps returns rules that select ConfigMaps.
func ConfigMaps() []v1alpha1.ResourceRule {
	return []v1alpha1.ResourceRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}}}
}

// Module returns a ClusterPolicyModule with inline Rego.
func Module(name, text string) *v1alpha1.ClusterPolicyModule {
	return &v1alpha1.ClusterPolicyModule{ObjectMeta: Meta("", name), Spec: v1alpha1.PolicyModuleSpec{Rego: &v1alpha1.RegoSource{Inline: &text}}}
}

// EndlessModule returns a ClusterPolicyModule that is fetched forever.
func EndlessModule(name string) *v1alpha1.ClusterPolicyModule {
	from := &v1alpha1.ConfigMapKeyReference{Namespace: "shop", Name: Endless, Key: "m.wasm"}
	return &v1alpha1.ClusterPolicyModule{ObjectMeta: Meta("", name), Spec: v1alpha1.PolicyModuleSpec{Wasm: &v1alpha1.WasmSource{ConfigMap: from}}}
}

// ModulePolicy returns a ClusterGCPolicy in Enforce mode with a module that has KeepText.
func ModulePolicy(name, module string, onFault v1alpha1.OnFault) *v1alpha1.ClusterGCPolicy {
	return &v1alpha1.ClusterGCPolicy{ObjectMeta: Meta("", name), Spec: v1alpha1.GCPolicySpec{
		Resources: ConfigMaps(), Mode: v1alpha1.ModeEnforce, OnFault: onFault, Module: &v1alpha1.ModuleReference{Name: module, Digest: Digest(KeepText)},
	}}
}

// Orphaning returns the spec of a policy in Enforce mode that reads objects and requires
// holds on them.
func Orphaning(account *v1alpha1.ServiceAccountReference) v1alpha1.GCPolicySpec {
	return v1alpha1.GCPolicySpec{
		Resources: ConfigMaps(), Mode: v1alpha1.ModeEnforce, ServiceAccount: account,
		MatchConditions: []v1alpha1.MatchCondition{{Name: "any", Expression: "true"}},
		Fixed:           &v1alpha1.FixedVerdicts{Propagate: &v1alpha1.FixedVerdict{Decision: "Orphan"}},
	}
}

// Keeping returns the spec of a policy in Enforce mode that keeps what loses its owners.
func Keeping(objects *metav1.LabelSelector, rules ...v1alpha1.ResourceRule) v1alpha1.GCPolicySpec {
	return v1alpha1.GCPolicySpec{
		Resources: rules, ObjectSelector: objects, Mode: v1alpha1.ModeEnforce,
		Fixed: &v1alpha1.FixedVerdicts{Collect: &v1alpha1.FixedVerdict{Decision: "Orphan"}},
	}
}

// Digest returns the digest of a module with one file.
func Digest(text string) string { return source.Digest([]source.File{{Data: []byte(text)}}) }

// PolicyOf returns the policy of a name in a snapshot; nil if there is none.
func PolicyOf(s *policyset.Snapshot, name string) *policyset.Policy {
	if i := slices.IndexFunc(s.Policies, func(p *policyset.Policy) bool { return p.Key.Name == name }); i >= 0 {
		return s.Policies[i]
	}
	return nil
}

// HasCondition requires a condition, whose message contains a text.
func HasCondition(t testing.TB, list []metav1.Condition, kind string, status metav1.ConditionStatus, reason, text string) {
	t.Helper()
	c := meta.FindStatusCondition(list, kind)
	if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, text) {
		t.Errorf("%s: got %+v, want %s, %s, and a message with %q", kind, c, status, reason, text)
	}
}
