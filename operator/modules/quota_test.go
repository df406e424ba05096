package modules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// left are the modules beyond a quota, as namespace/name.
func left(q Quota, items ...quotaItem) []string {
	var names []string
	for i := range items {
		items[i].uid = types.UID(items[i].namespace + "/" + items[i].name)
	}
	for uid := range q.exceeding(items) {
		names = append(names, string(uid))
	}
	slices.Sort(names)
	return names
}

func TestModulesBeyondAQuotaAreLeftOut(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	for claim, c := range map[string]struct {
		quota Quota
		items []quotaItem
		want  []string
	}{
		"the oldest come first": {Quota{ModulesPerNamespace: 1},
			[]quotaItem{{namespace: "a", name: "young", created: at(2)}, {namespace: "a", name: "old", created: at(1)}}, []string{"a/young"}},
		"of one age the first by name": {Quota{ModulesPerNamespace: 1},
			[]quotaItem{{namespace: "a", name: "y"}, {namespace: "a", name: "x"}}, []string{"a/y"}},
		"each namespace has its own": {Quota{ModulesPerNamespace: 1},
			[]quotaItem{{namespace: "a", name: "m"}, {namespace: "b", name: "m"}, {name: "m"}, {name: "n"}}, nil},
		"no tenant takes the place of a cluster module": {Quota{Modules: 1},
			[]quotaItem{{namespace: "a", name: "old", created: at(1)}, {name: "young", created: at(2)}}, []string{"a/old"}},
		"sizes of a namespace": {Quota{SizePerNamespace: 10},
			[]quotaItem{{namespace: "a", name: "x", size: 8}, {namespace: "a", name: "y", size: 3}, {namespace: "a", name: "z", size: 2}, {namespace: "b", name: "y", size: 3}},
			[]string{"a/y"}},
		"sizes of the cluster": {Quota{Size: 10},
			[]quotaItem{{namespace: "a", name: "x", size: 8}, {name: "x", size: 8}, {namespace: "a", name: "z", size: 2}}, []string{"a/x"}},
		"what is left out of a namespace takes nothing of the cluster's": {Quota{Modules: 2, ModulesPerNamespace: 1},
			[]quotaItem{{namespace: "a", name: "x"}, {namespace: "a", name: "y"}, {namespace: "b", name: "z"}}, []string{"a/y"}},
		"0 is no limit": {Quota{}, []quotaItem{{namespace: "a", name: "x", size: 1 << 40}, {namespace: "a", name: "y", size: 1 << 40}}, nil},
	} {
		if got := left(c.quota, c.items...); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", claim, got, c.want)
		}
	}
}

func tenantModule(namespace, name string, created int64, size int) *v1alpha1.PolicyModule {
	text := keepText + strings.Repeat("#", size-len(keepText)-1) + "\n"
	m := &v1alpha1.PolicyModule{ObjectMeta: named(namespace, name), Spec: v1alpha1.PolicyModuleSpec{Rego: &v1alpha1.RegoSource{Inline: &text}}}
	m.CreationTimestamp = metav1.NewTime(time.Unix(created, 0))
	return m
}

func TestModulesBeyondAQuotaAreNotCompiledAndSaySo(t *testing.T) {
	k := loading(t, keeper(t, func(o *Options) { o.Quota = Quota{ModulesPerNamespace: 2, SizePerNamespace: 1000} },
		tenantModule("a", "old", 1, 600), tenantModule("a", "large", 2, 600), tenantModule("a", "third", 3, 100), tenantModule("b", "m", 4, 600),
		&v1alpha1.GCPolicy{ObjectMeta: named("a", "p"), Spec: v1alpha1.GCPolicySpec{Resources: configMaps(), Module: &v1alpha1.ModuleReference{Name: "large"}}}))
	for round := range 3 {
		b, err := k.settled(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, m := range b.modules {
			m.describe()
			got[m.key.String()] = m.problem.reason
			if (m.compiled == nil) != (m.problem.reason == "QuotaExceeded") {
				t.Errorf("round %d: %s: compiled %t, %+v", round, m.key, m.compiled != nil, m.problem)
			}
			if m.key.Name == "large" {
				has(t, m.status.Conditions, v1alpha1.ConditionFetched, metav1.ConditionFalse, "QuotaExceeded", "--max-modules-size-per-namespace")
			}
		}
		want := map[string]string{"a/old": "", "a/large": "QuotaExceeded", "a/third": "", "b/m": ""}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("round %d: got %v, want %v", round, got, want)
		}
		k.describe(b, b.policies[0])
		has(t, b.policies[0].status.Conditions, v1alpha1.ConditionModuleReady, metav1.ConditionFalse, "QuotaExceeded", "PolicyModule a/large")
	}
	if err := k.source.(client.Client).Delete(t.Context(), tenantModule("a", "old", 1, 600)); err != nil {
		t.Fatal(err)
	}
	b, err := k.settled(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range b.modules {
		if m.compiled == nil {
			t.Errorf("%s is left out where there is room: %+v", m.key, m.problem)
		}
	}
}

func TestTenantModulesAreNotUsedWhereTheyAreDisabled(t *testing.T) {
	cluster := "ClusterPolicyModule"
	k := loading(t, keeper(t, func(o *Options) { o.DisableTenantModules = true },
		tenantModule("a", "m", 1, 100), moduleOf(keepText),
		&v1alpha1.GCPolicy{ObjectMeta: named("a", "own"), Spec: v1alpha1.GCPolicySpec{
			Resources: configMaps(), Mode: v1alpha1.ModeEnforce, Module: &v1alpha1.ModuleReference{Name: "m", Digest: digestOf(keepText)}}},
		&v1alpha1.GCPolicy{ObjectMeta: named("a", "cluster"), Spec: v1alpha1.GCPolicySpec{
			Resources: configMaps(), Mode: v1alpha1.ModeEnforce, Module: &v1alpha1.ModuleReference{Kind: cluster, Name: "m", Digest: digestOf(keepText)}}},
		&v1alpha1.GCPolicy{ObjectMeta: named("a", "fixed"), Spec: v1alpha1.GCPolicySpec{
			Resources: configMaps(), Mode: v1alpha1.ModeEnforce, Fixed: &v1alpha1.FixedVerdicts{Collect: &v1alpha1.FixedVerdict{Decision: "Orphan"}}}}))
	b, err := k.settled(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range b.policies {
		k.describe(b, p)
		if ready := p.policy.Asker != nil; ready != (p.key.Name != "own") {
			t.Errorf("%s is ready: %t, %s", p.key, ready, p.policy.NotReady)
		}
		if p.key.Name == "own" {
			has(t, p.status.Conditions, v1alpha1.ConditionModuleReady, metav1.ConditionFalse, "TenantModulesDisabled", "are kept")
		}
	}
	for _, m := range b.modules {
		m.describe()
		if m.kind == "PolicyModule" {
			has(t, m.status.Conditions, v1alpha1.ConditionFetched, metav1.ConditionFalse, "TenantModulesDisabled", "use a ClusterPolicyModule")
		}
	}
}
