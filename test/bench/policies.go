package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds"
	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/pins"
)

// Policies have no equivalent upstream: the cost of evaluating one is measured
// relative to none.
const (
	manyPolicies = 500
	manyModules  = 50
)

// variant is a kind of policy for all objects.
type variant struct {
	name   string
	policy *v1alpha1.ClusterGCPolicy
	module *v1alpha1.ClusterPolicyModule
}

const deleteModule = `package gleaner
collect := {"decision": "Delete"} if input.object.kind == "ConfigMap"
`

// deleteEmptyModule reads the object itself.
const deleteEmptyModule = `package gleaner
collect := {"decision": "Delete"} if not input.object.data.keep
`

// referenceTo returns a reference to a module with its digest.
func referenceTo(m *v1alpha1.ClusterPolicyModule) v1alpha1.ModuleReference {
	reference := v1alpha1.ModuleReference{Name: m.Name, Digest: m.Spec.SHA256}
	if r := m.Spec.Rego; r != nil && r.Inline != nil {
		reference.Digest = pins.Of(*r.Inline)
	}
	return reference
}

// policyOf returns a policy for all ConfigMaps, with a module, or with a fixed Delete if it is nil.
func policyOf(name string, needs v1alpha1.Need, module *v1alpha1.ClusterPolicyModule) *v1alpha1.ClusterGCPolicy {
	p := &v1alpha1.ClusterGCPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Resources = []v1alpha1.ResourceRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}}}
	p.Spec.Mode, p.Spec.Needs = v1alpha1.ModeEnforce, needs
	if module == nil {
		p.Spec.Fixed = &v1alpha1.FixedVerdicts{Collect: &v1alpha1.FixedVerdict{Decision: "Delete"}}
		return p
	}
	reference := referenceTo(module)
	p.Spec.Module = &reference
	return p
}

func regoModule(name, text string) *v1alpha1.ClusterPolicyModule {
	m := &v1alpha1.ClusterPolicyModule{ObjectMeta: metav1.ObjectMeta{Name: name}}
	m.Spec.Rego = &v1alpha1.RegoSource{Inline: &text}
	return m
}

func (f policyBench) variants(ctx context.Context, c client.Client) ([]variant, error) {
	wasm, err := wasmModule(ctx, c, f.binary, stockGo, "bench-wasm", deleteModuleInGo)
	if err != nil {
		return nil, err
	}
	rego, object := regoModule("bench-rego", deleteModule), regoModule("bench-rego-object", deleteEmptyModule)
	return []variant{
		{name: "no policy"},
		{"a fixed verdict", policyOf("bench", v1alpha1.NeedReference, nil), nil},
		{"Rego, needs: Reference", policyOf("bench", v1alpha1.NeedReference, rego), rego},
		{"Go, needs: Reference", policyOf("bench", v1alpha1.NeedReference, wasm), wasm},
		{"Rego, needs: Object that it does not use", policyOf("bench", v1alpha1.NeedObject, rego), rego},
		{"Rego, needs: Object", policyOf("bench", v1alpha1.NeedObject, object), object},
		{"Go, needs: Object", policyOf("bench", v1alpha1.NeedObject, wasm), wasm},
	}, nil
}

// deleteModuleInGo implements only collect, as deleting does: for a module that also implements
// propagate, every object gets a hold, which costs more than the evaluation.
const deleteModuleInGo = `package main

import gleaner "github.com/gleaner-dev/gleaner/sdk/go"

func main() {}

//go:wasmexport collect
func Collect() { gleaner.Serve(collect) }

func collect(r gleaner.Request) (gleaner.Verdict, error) {
	if r.Object.Kind == "ConfigMap" {
		return gleaner.Verdict{Decision: gleaner.Delete}, nil
	}
	return gleaner.Verdict{Decision: gleaner.Abstain}, nil
}
`

// policies measures the cost of evaluating policies.
func (f policyBench) policies(ctx context.Context, r *report, b budget) error {
	c, err := f.define(ctx)
	if err != nil {
		return err
	}
	variants, err := f.variants(ctx, c)
	if err != nil {
		return err
	}
	rates := map[string][]float64{}
	for range f.rounds {
		for _, v := range variants {
			perSecond, err := f.measureUnder(ctx, c, v, b)
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			progress("background, %s: %.0f objects/s", v.name, perSecond)
			rates[v.name] = append(rates[v.name], perSecond)
		}
	}
	none := median(rates[variants[0].name])
	for _, v := range variants {
		r.note("background, objects/s, %s: %.0f (%.0f %% of no policy)", v.name, median(rates[v.name]), 100*median(rates[v.name])/none)
	}
	err = f.many(ctx, c, r, b, none)
	return errors.Join(err, c.DeleteAllOf(ctx, &v1alpha1.ClusterGCPolicy{}), c.DeleteAllOf(ctx, &v1alpha1.ClusterPolicyModule{}))
}

// define creates the CustomResourceDefinitions, and waits until they are served.
func (f *testbed) define(ctx context.Context) (client.Client, error) {
	definitions, err := crds.Definitions()
	if err != nil {
		return nil, err
	}
	types, err := apiextensions.NewForConfig(f.config)
	if err != nil {
		return nil, err
	}
	for _, d := range definitions {
		if _, err := types.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, d, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	c, err := client.New(f.config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	return c, until(ctx, func() error {
		return errors.Join(c.List(ctx, &v1alpha1.ClusterGCPolicyList{}), c.List(ctx, &v1alpha1.ClusterFinalizerList{}))
	})
}

// until retries until a function succeeds.
func until(ctx context.Context, works func() error) error {
	return devtest.Retry(ctx, time.Minute, 10*time.Millisecond, works)
}

// warmUp is the number of objects that are collected before the measurement: the first ones start
// workers, which load the module.
const warmUp = 200

// measureUnder measures one collection under a policy, which is deleted afterward.
func (f policyBench) measureUnder(ctx context.Context, c client.Client, v variant, b budget) (perSecond float64, err error) {
	var created []client.Object
	if v.module != nil {
		created = append(created, v.module.DeepCopy())
	}
	if v.policy != nil {
		created = append(created, v.policy.DeepCopy())
	}
	for _, o := range created {
		if err := c.Create(ctx, o); err != nil {
			return 0, err
		}
	}
	gleaner := f.contenders[1]
	err = f.with(ctx, gleaner, b, func() error {
		if v.policy != nil {
			if err := until(ctx, func() error { return enforcing(ctx, c, v.policy.Name) }); err != nil {
				return err
			}
		}
		if _, _, err = f.once(ctx, warmUp, metav1.DeletePropagationBackground); err != nil {
			return err
		}
		perSecond, _, err = f.once(ctx, f.objects, metav1.DeletePropagationBackground)
		return err
	})
	for _, o := range created {
		if deleted := c.Delete(ctx, o); err == nil {
			err = deleted
		}
	}
	return perSecond, err
}

func enforcing(ctx context.Context, c client.Client, name string) error {
	var p v1alpha1.ClusterGCPolicy
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &p); err != nil {
		return err
	}
	if !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionEnforcing) {
		return fmt.Errorf("policy %s is not enforcing: %v", name, p.Status.Conditions)
	}
	return nil
}

// many measures with very many policies, all of which are matched and none of
// which governs the objects. It compares with the rate without a policy.
func (f policyBench) many(ctx context.Context, c client.Client, r *report, b budget, none float64) error {
	gleaner := f.contenders[1]
	var empty float64
	if err := f.with(ctx, gleaner, b, func() (err error) {
		empty, _, err = resident(gleaner.pid())
		return err
	}); err != nil {
		return err
	}
	var modules []*v1alpha1.ClusterPolicyModule
	for i := range manyModules {
		m := regoModule(fmt.Sprintf("many-%d", i), fmt.Sprintf("%s# %d\n", deleteModule, i))
		if err := c.Create(ctx, m); err != nil {
			return err
		}
		modules = append(modules, m)
	}
	for i := range manyPolicies {
		p := policyOf(fmt.Sprintf("many-%d", i), v1alpha1.NeedReference, modules[i%manyModules])
		p.Spec.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"group": fmt.Sprint(i)}}
		if err := c.Create(ctx, p); err != nil {
			return err
		}
	}
	return f.with(ctx, gleaner, b, func() error {
		began := time.Now()
		if err := until(ctx, func() error { return enforcing(ctx, c, fmt.Sprintf("many-%d", manyPolicies-1)) }); err != nil {
			return err
		}
		r.note("%d policies of %d Rego modules: seconds until all are in force: %.1f", manyPolicies, manyModules, time.Since(began).Seconds())
		perSecond, _, err := f.once(ctx, f.objects, metav1.DeletePropagationBackground)
		if err != nil {
			return err
		}
		r.note("background, objects/s, with %d policies whose selectors are matched: %.0f (%.0f %% of no policy)", manyPolicies, perSecond, 100*perSecond/none)
		began = time.Now()
		if err := c.Create(ctx, policyOf("one-more", v1alpha1.NeedReference, nil)); err != nil {
			return err
		}
		if err := until(ctx, func() error { return enforcing(ctx, c, "one-more") }); err != nil {
			return err
		}
		r.note("seconds until one more policy is in force: %.2f", time.Since(began).Seconds())
		now, _, err := resident(gleaner.pid())
		r.note("resident memory growth, MiB, with them: %.0f", now-empty)
		return err
	})
}
