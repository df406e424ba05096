package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// benchFinalizer is the finalizer under measurement.
const benchFinalizer = "bench.example.com/handled"

const doneAtOnce = `package gleaner
finalize := {"decision": "Done"}
`

const doneOnResponse = `package gleaner

url := sprintf("%s/%s", [input.policy.settings.url, input.object.metadata.name])

finalize := {"decision": "Done"} if input.results.gone.http.status == 200
else := {"decision": "Wait", "after": "1s"} if input.results.gone
else := {"decision": "Act", "intents": [{"id": "gone", "http": {"method": "DELETE", "url": url}}]}
`

const doneOnResponseInGo = `package main

import (
	gleaner "github.com/gleaner-dev/gleaner/sdk/go"
	"github.com/gleaner-dev/gleaner/sdk/go/finalize"
)

func main() {}

//go:wasmexport needs_reference
func NeedsReference() {} // it reads no more of an object, as can be seen from a module in Rego

//go:wasmexport finalize
func Finalize() { gleaner.Serve(finalizer) }

func finalizer(r gleaner.Request) (gleaner.Verdict, error) {
	return finalize.Run(r, func(s *finalize.Steps) {
		var settings struct {
			URL string ` + "`json:\"url\"`" + `
		}
		s.Settings(&settings)
		s.Call("gone", gleaner.HTTPIntent{Method: "DELETE", URL: settings.URL + "/" + r.Object.Metadata.Name})
	})
}
`

// serving is a way to handle the finalizer.
type serving struct {
	name     string
	baseline string // the equivalent handwritten controller
	sends    bool   // one request for each object
	by       contender

	finalizer *v1alpha1.ClusterFinalizer // nil: handwritten controller
	module    *v1alpha1.ClusterPolicyModule
}

// finalizers measures the cost of handling a finalizer, compared with an equivalent handwritten
// controller.
func (f finalizerBench) finalizers(ctx context.Context, r *report, b budget) error {
	c, err := f.define(ctx)
	if err != nil {
		return err
	}
	s, err := newFakeServer()
	if err != nil {
		return err
	}
	defer s.close()
	servings, err := f.servings(ctx, c, s)
	if err != nil {
		return err
	}
	figures := map[string][]deletion{}
	var alone []float64
	for range f.rounds {
		for _, v := range servings {
			d, err := f.deletionUnder(ctx, c, s, v, b)
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			if err := f.measureBacklog(ctx, c, v, b, &d); err != nil {
				return fmt.Errorf("%s, backlog: %w", v.name, err)
			}
			progress("%s: %d objects in %.2f s, all marked after %.2f s; backlog: %.0f objects/s", v.name, f.finalized, d.seconds, d.marked, d.backlog)
			figures[v.name] = append(figures[v.name], d)
			alone = append(alone, d.alone)
		}
	}
	r.tables = append(r.tables, f.speedTable(servings, figures), f.resourceTable(servings, figures))
	r.note("seconds until all %d are marked while their finalizer is not handled: %.2f", f.finalized, median(alone))
	return f.attaching(ctx, c, r, b, servings[1])
}

func (f finalizerBench) servings(ctx context.Context, c client.Client, s *fakeServer) ([]serving, error) {
	namespace, err := f.namespace(ctx)
	if err != nil {
		return nil, err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bench"}}
	if err := c.Create(ctx, account); err != nil {
		return nil, err
	}
	wasm, err := wasmModule(ctx, c, f.binary, stockGo, "bench-finalizer-go", doneOnResponseInGo)
	if err != nil {
		return nil, err
	}
	const atOnce, oneRequest = "at once, " + handwrittenName, "one request, " + handwrittenName
	gleaner := f.contenders[1]
	done, sends := regoModule("bench-finalizer-done", doneAtOnce), regoModule("bench-finalizer-rego", doneOnResponse)
	return []serving{
		{name: atOnce, baseline: atOnce, by: &handwritten{cluster: f.cluster}},
		{name: "at once, Rego", baseline: atOnce, by: gleaner, finalizer: finalizerOf(done, nil, ""), module: done},
		{name: oneRequest, baseline: oneRequest, sends: true, by: &handwritten{cluster: f.cluster, url: s.url}},
		{name: "one request, Rego", baseline: oneRequest, sends: true, by: gleaner, finalizer: finalizerOf(sends, account, s.url), module: sends},
		{name: "one request, Go", baseline: oneRequest, sends: true, by: gleaner, finalizer: finalizerOf(wasm, account, s.url), module: wasm},
	}, nil
}

// finalizerOf returns a ClusterFinalizer for ConfigMaps, whose module may send
// requests to a URL if it has an account.
func finalizerOf(m *v1alpha1.ClusterPolicyModule, account *corev1.ServiceAccount, url string) *v1alpha1.ClusterFinalizer {
	o := &v1alpha1.ClusterFinalizer{ObjectMeta: metav1.ObjectMeta{Name: m.Name}}
	o.Spec.Finalizer = benchFinalizer
	o.Spec.Resources = []v1alpha1.ResourceRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}}}
	o.Spec.Module = referenceTo(m)
	o.Spec.Mode = v1alpha1.ModeEnforce
	if account == nil {
		return o
	}
	settings, err := json.Marshal(map[string]string{"url": url})
	if err != nil {
		panic(err) // two strings
	}
	o.Spec.Settings = &apiextensionsv1.JSON{Raw: settings}
	o.Spec.ServiceAccount = &v1alpha1.ServiceAccountReference{Namespace: account.Namespace, Name: account.Name}
	o.Spec.Grants = &v1alpha1.FinalizerGrants{HTTP: []v1alpha1.HTTPGrant{{
		URL: url + "/*", Methods: []v1alpha1.HTTPMethod{"DELETE"}, Addresses: []string{"127.0.0.0/8"},
	}}}
	return o
}

// serve has only this serving handle the finalizer while do runs, from its call of
// begin on.
func (f finalizerBench) serve(ctx context.Context, c client.Client, v serving, b budget, do func(begin func() error) error) error {
	if v.finalizer == nil {
		err := do(func() error { return v.by.start(ctx, b) })
		waitForEvents(f.finalized) // otherwise it logs errors for unread responses
		return errors.Join(err, v.by.stop())
	}
	return f.with(ctx, v.by, b, func() error {
		if err := do(func() error { return applyFinalizer(ctx, c, v) }); err != nil {
			return err
		}
		return removeFinalizer(ctx, c, v)
	})
}

// applyFinalizer creates the finalizer's resources, and waits until it is enforced.
func applyFinalizer(ctx context.Context, c client.Client, v serving) error {
	if v.finalizer == nil {
		return nil
	}
	if err := c.Create(ctx, v.module.DeepCopy()); err != nil {
		return err
	}
	if err := c.Create(ctx, v.finalizer.DeepCopy()); err != nil {
		return err
	}
	return until(ctx, func() error {
		var o v1alpha1.ClusterFinalizer
		if err := c.Get(ctx, client.ObjectKeyFromObject(v.finalizer), &o); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionEnforcing) {
			return fmt.Errorf("finalizer %s is not enforcing: %v", o.Name, o.Status.Conditions)
		}
		return nil
	})
}

// removeFinalizer deletes the finalizer's resource while Gleaner is running to release
// it.
func removeFinalizer(ctx context.Context, c client.Client, v serving) error {
	if v.finalizer == nil {
		return nil
	}
	if err := errors.Join(c.Delete(ctx, v.finalizer.DeepCopy()), c.Delete(ctx, v.module.DeepCopy())); err != nil {
		return err
	}
	return until(ctx, func() error {
		for _, o := range []client.Object{&v1alpha1.ClusterFinalizer{}, &v1alpha1.ClusterPolicyModule{}} {
			if err := c.Get(ctx, client.ObjectKeyFromObject(v.finalizer), o); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s still exists: %w", v.finalizer.Name, err)
			}
		}
		return nil
	})
}
