package modulestore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

func item(namespace, name string, created int64, size int64) quotaItem {
	return quotaItem{key: moduleKey{ref: Ref{namespace, name}}, created: time.Unix(created, 0), size: size}
}

func TestQuota_ExcludesModulesBeyondIt(t *testing.T) {
	for claim, c := range map[string]struct {
		quota Quota
		items []quotaItem
		want  []string
	}{
		"the oldest come first":        {Quota{ModulesPerNamespace: 1}, []quotaItem{item("a", "young", 2, 0), item("a", "old", 1, 0)}, []string{"a/young"}},
		"of one age the first by name": {Quota{ModulesPerNamespace: 1}, []quotaItem{item("a", "y", 0, 0), item("a", "x", 0, 0)}, []string{"a/y"}},
		"each namespace has its own": {Quota{ModulesPerNamespace: 1},
			[]quotaItem{item("a", "m", 0, 0), item("b", "m", 0, 0), item("", "m", 0, 0), item("", "n", 0, 0)}, nil},
		"no tenant takes the place of a cluster module": {Quota{Modules: 1}, []quotaItem{item("a", "old", 1, 0), item("", "young", 2, 0)}, []string{"a/old"}},
		"sizes of a namespace": {Quota{SizePerNamespace: 10},
			[]quotaItem{item("a", "x", 0, 8), item("a", "y", 0, 3), item("a", "z", 0, 2), item("b", "y", 0, 3)}, []string{"a/y"}},
		"sizes of the cluster": {Quota{Size: 10}, []quotaItem{item("a", "x", 0, 8), item("", "x", 0, 8), item("a", "z", 0, 2)}, []string{"a/x"}},
		"what is excluded in a namespace uses nothing of the cluster's": {Quota{Modules: 2, ModulesPerNamespace: 1},
			[]quotaItem{item("a", "x", 0, 0), item("a", "y", 0, 0), item("b", "z", 0, 0)}, []string{"a/y"}},
		"0 is no limit": {Quota{}, []quotaItem{item("a", "x", 0, 1<<40), item("a", "y", 0, 1<<40)}, nil},
	} {
		var got []string
		for key := range c.quota.exceeding(c.items) {
			got = append(got, key.ref.Namespace+"/"+key.ref.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", claim, got, c.want)
		}
	}
}

// sized is a module of some bytes that was created at a time.
func sized(namespace, name string, created int64, size int) Resource {
	r := inlineModule(namespace, name, name+strings.Repeat("#", size-len(name)))
	r.Created = time.Unix(created, 0)
	return r
}

// isExcluded requires that a module is excluded for a reason.
func isExcluded(t *testing.T, s *Store, r Resource, reason string) {
	t.Helper()
	state, _ := s.Get(r.Ref, "")
	excluded := (*ExclusionError)(nil)
	if state.Phase != Failed || !errors.As(state.Err, &excluded) || excluded.Reason != reason {
		t.Errorf("%s: got %+v, want it to be excluded by %s", r, state, reason)
	}
}

func TestQuota_WhatIsBeyondItIsNotCompiledUntilThereIsRoom(t *testing.T) {
	f := newFake()
	simulateWith(t, f, Options{Quota: Quota{ModulesPerNamespace: 2, SizePerNamespace: 1000}}, func(t *testing.T, s *Store) {
		old, large, third, other := sized("a", "old", 1, 600), sized("a", "large", 2, 600), sized("a", "third", 3, 100), sized("b", "m", 4, 600)
		for range 3 {
			s.SetModules([]Resource{old, large, third, other})
			synctest.Wait()
			wantPhase(t, s, old, Ready)
			wantPhase(t, s, third, Ready)
			wantPhase(t, s, other, Ready)
			isExcluded(t, s, large, ReasonQuotaExceeded)
		}
		if n := f.countOf(f.compiled, *large.Spec.Rego.Inline); n != 0 {
			t.Errorf("it was compiled %d times", n)
		}
		s.SetModules([]Resource{large, third, other})
		synctest.Wait()
		wantPhase(t, s, large, Ready)
		wantPhase(t, s, third, Ready)
	})
}

func TestQuota_AConfigMapThatBecomesSmallerIsWithinIt(t *testing.T) {
	f, size := newFake(), 200
	f.fetch = func(_ context.Context, r Resource) (string, error) { return r.Name + strings.Repeat("#", size), nil }
	simulateWith(t, f, Options{Quota: Quota{Size: 100}}, func(t *testing.T, s *Store) {
		m := Resource{Ref: Ref{"shop", "m"}, UID: "m", Spec: v1alpha1.PolicyModuleSpec{
			Wasm: &v1alpha1.WasmSource{ConfigMap: &v1alpha1.ConfigMapKeyReference{Name: "rules"}},
		}}
		s.SetModules([]Resource{m})
		synctest.Wait()
		isExcluded(t, s, m, ReasonQuotaExceeded)
		size = 50
		key, _ := m.ConfigMap()
		s.ConfigMapChanged(key)
		synctest.Wait()
		wantPhase(t, s, m, Ready)
	})
}

func TestQuota_TenantModulesAreExcludedWhereTheyAreDisabled(t *testing.T) {
	f := newFake()
	simulateWith(t, f, Options{DisableTenantModules: true}, func(t *testing.T, s *Store) {
		tenant, cluster := inlineModule("shop", "m", "x"), inlineModule("", "m", "y")
		s.SetModules([]Resource{tenant, cluster})
		synctest.Wait()
		isExcluded(t, s, tenant, ReasonTenantModulesDisabled)
		wantPhase(t, s, cluster, Ready)
		if f.countOf(f.fetched, "m") != 1 {
			t.Error("a disabled module was fetched")
		}
	})
}
