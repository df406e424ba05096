package collector_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/fixed"
)

// govern puts a policy into force, whose verdict is the input.
func govern(w *world, args words, input string) {
	kind, hook := kindOf(args.plain[0]).GroupKind(), hostabi.Hook(args.plain[1])
	resource, ok := w.types.Preferred(kind)
	if !ok {
		w.t.Fatalf("there is no type %s", kind)
	}
	name := fmt.Sprintf("policy-%d", len(w.policies)+1)
	verdict, err := fixed.New(name, map[hostabi.Hook][]byte{hook: []byte(input)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.policies = append(w.policies, &policies.Policy{
		Name: name, Hooks: []hostabi.Hook{hook}, Enforce: true, Needs: policies.NeedsReference, Evaluator: written{verdict},
		Rules: []policies.Rule{{Groups: []string{kind.Group}, Resources: []string{resource.Version.Resource}}},
	})
	w.PoliciesChanged()
}

// written is a fixed verdict.
type written struct{ *fixed.Policy }

// EvaluateMetered implements policies.Evaluator.
func (p written) EvaluateMetered(ctx context.Context, r hostabi.Request) (policies.Evaluation, error) {
	verdict, err := p.Evaluate(ctx, r)
	return policies.Evaluation{Verdict: verdict}, err
}

// storyReader reads for policies, without a request that a story would show.
type storyReader struct{ *api }

// Get implements modulecall.Reader.
func (r storyReader) Get(_ context.Context, _ policies.ServiceAccount, resource schema.GroupVersionResource, ns, name string) (*unstructured.Unstructured, error) {
	r.reads++
	o, ok := r.objects[key{resource.GroupResource(), ns, name}]
	if !ok {
		return nil, apierrors.NewNotFound(resource.GroupResource(), name)
	}
	i := slices.IndexFunc(r.types, func(t servedType) bool { return t.GroupVersionResource == resource })
	meta := *o.DeepCopy()
	meta.TypeMeta = metav1.TypeMeta{APIVersion: resource.GroupVersion().String(), Kind: r.types[i].kind}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&meta)
	if o.observedGeneration != 0 {
		content["status"] = map[string]any{"observedGeneration": o.observedGeneration}
	}
	return &unstructured.Unstructured{Object: content}, err
}

// Namespace implements modulecall.Reader.
func (r storyReader) Namespace(context.Context, string) (modulecall.Namespace, error) {
	return modulecall.Namespace{}, nil
}

// observed has the controllers of objects report the generation that these have now.
func (w *world) observed(args words) {
	w.each(args, func(uid string) { w.object(uid).observedGeneration = w.object(uid).Generation })
}

// stateKeys returns the keys of state annotations.
func (w *world) stateKeys() (statekey.Keys, error) {
	if w.keysErr != nil {
		return statekey.Keys{}, w.keysErr
	}
	return statekey.Parse(map[string][]byte{statekey.Current: bytes.Repeat([]byte{1}, statekey.MinBytes)})
}
