package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// modules measures how long it takes until very many different modules are in force, without and
// with a cache of compiled modules, and the cost of modules by how they were built.
func (f loadBench) modules(ctx context.Context, r *report, b budget) error {
	c, err := f.define(ctx)
	if err != nil {
		return err
	}
	modules, err := f.differentModules(ctx, c)
	if err != nil {
		return err
	}
	cache, err := os.MkdirTemp("", "gleaner-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(cache)
	gleaner := &gleanerProcess{cluster: f.cluster, binary: f.binary, pprof: f.pprof, more: []string{"--cache-dir=" + cache}}
	for _, how := range []string{"without a cache", "with the cache of that run"} {
		var took, waited time.Duration
		if err := f.with(ctx, gleaner, b, func() (err error) {
			took, waited, err = untilInForce(ctx, c, modules)
			return err
		}); err != nil {
			return fmt.Errorf("%s: %w", how, err)
		}
		r.note("seconds until %d modules (%d in Go) are in force, %s: %.1f, of them after the last of %d creates: %.1f", len(modules), goModules, how,
			took.Seconds(), 2*len(modules), waited.Seconds())
		if err := errors.Join(c.DeleteAllOf(ctx, &v1alpha1.ClusterGCPolicy{}), c.DeleteAllOf(ctx, &v1alpha1.ClusterPolicyModule{})); err != nil {
			return err
		}
	}
	return f.builds(ctx, c, r, b)
}

// untilInForce applies modules with a policy for each, and waits until all are in force. It returns
// how long that took from the first create, and from the last.
func untilInForce(ctx context.Context, c client.Client, modules []*v1alpha1.ClusterPolicyModule) (took, waited time.Duration, err error) {
	began := time.Now()
	for i, m := range modules {
		if err := c.Create(ctx, m.DeepCopy()); err != nil {
			return 0, 0, err
		}
		if err := c.Create(ctx, policyOf(fmt.Sprintf("load-%d", i), v1alpha1.NeedReference, m)); err != nil {
			return 0, 0, err
		}
	}
	created := time.Now()
	for i := range modules {
		if err := until(ctx, func() error { return enforcing(ctx, c, fmt.Sprintf("load-%d", i)) }); err != nil {
			return 0, 0, err
		}
	}
	return time.Since(began), time.Since(created), nil
}

// builds compares a cascade under modules of the same source that were built by different
// compilers.
func (f loadBench) builds(ctx context.Context, c client.Client, r *report, b budget) error {
	compilers := []string{stockGo}
	if _, err := exec.LookPath(tinyGo); err == nil {
		compilers = append(compilers, tinyGo)
	} else {
		progress("TinyGo is not installed, so modules built by it are not measured")
	}
	measured := policyBench(f)
	rates := map[string][]float64{}
	for range f.rounds {
		for _, name := range append([]string{"no policy"}, compilers...) {
			v := variant{name: name}
			if name != "no policy" {
				m, err := wasmModule(ctx, c, f.binary, name, "build-"+name, deleteModuleInGo)
				if err != nil {
					return err
				}
				v.module, v.policy = m, policyOf("build", v1alpha1.NeedReference, m)
			}
			perSecond, err := measured.measureUnder(ctx, c, v, b)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			rates[name] = append(rates[name], perSecond)
		}
	}
	none := median(rates["no policy"])
	for _, name := range compilers {
		r.note("background, objects/s, a module built by %s: %.0f (%.0f %% of no policy)", name, median(rates[name]), 100*median(rates[name])/none)
	}
	return nil
}
