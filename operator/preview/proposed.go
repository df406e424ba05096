package preview

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// proposedReader reads a cluster as if some objects were applied to it.
type proposedReader struct {
	live    client.Reader
	scheme  *runtime.Scheme
	objects []client.Object
}

// newProposedReader returns a reader that treats objects as applied. Only objects that define
// policies have an effect.
func newProposedReader(config *rest.Config, objects []*unstructured.Unstructured) (*proposedReader, error) {
	p := &proposedReader{scheme: runtime.NewScheme()}
	if err := errors.Join(clientgoscheme.AddToScheme(p.scheme), v1alpha1.AddToScheme(p.scheme)); err != nil {
		return nil, err
	}
	live, err := client.New(config, client.Options{Scheme: p.scheme})
	if err != nil {
		return nil, fmt.Errorf("make client for policies: %w", err)
	}
	p.live = live
	for _, o := range objects {
		made, err := p.scheme.New(o.GroupVersionKind())
		if err != nil {
			return nil, fmt.Errorf("read %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		typed := made.(client.Object)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, typed); err != nil {
			return nil, fmt.Errorf("read %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		typed.SetUID(types.UID("proposed " + o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()))
		p.objects = append(p.objects, typed)
	}
	return p, nil
}

// Get implements client.Reader.
func (p *proposedReader) Get(ctx context.Context, key client.ObjectKey, to client.Object, opts ...client.GetOption) error {
	for _, o := range p.objects {
		if reflect.TypeOf(o) == reflect.TypeOf(to) && client.ObjectKeyFromObject(o) == key {
			reflect.ValueOf(to).Elem().Set(reflect.ValueOf(o.DeepCopyObject()).Elem())
			return nil
		}
	}
	return p.live.Get(ctx, key, to, opts...)
}

// List implements client.Reader, for all objects of a kind. For a kind that the cluster
// does not serve, it returns the proposed ones.
func (p *proposedReader) List(ctx context.Context, to client.ObjectList, opts ...client.ListOption) error {
	var applied []client.Object
	for _, o := range p.objects {
		if kindOf(o)+"List" == kindOf(to) {
			applied = append(applied, o)
		}
	}
	if err := p.live.List(ctx, to, opts...); err != nil && (len(applied) == 0 || !meta.IsNoMatchError(err)) {
		return err
	}
	existing, err := meta.ExtractList(to)
	if err != nil {
		return err
	}
	var all []runtime.Object
	for _, o := range existing {
		if !replaces(applied, o.(client.Object)) {
			all = append(all, o)
		}
	}
	for _, o := range applied {
		all = append(all, o.DeepCopyObject())
	}
	return meta.SetList(to, all)
}

func replaces(objects []client.Object, old client.Object) bool {
	for _, o := range objects {
		if client.ObjectKeyFromObject(o) == client.ObjectKeyFromObject(old) {
			return true
		}
	}
	return false
}
