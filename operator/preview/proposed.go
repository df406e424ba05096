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

// proposed reads a cluster as it would be with some objects applied.
type proposed struct {
	live    client.Reader
	scheme  *runtime.Scheme
	objects []client.Object
}

// propose takes objects as if they were applied. They are those that policies are made
// of: others would change nothing here.
func propose(config *rest.Config, objects []*unstructured.Unstructured) (*proposed, error) {
	p := &proposed{scheme: runtime.NewScheme()}
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
func (p *proposed) Get(ctx context.Context, key client.ObjectKey, to client.Object, opts ...client.GetOption) error {
	for _, o := range p.objects {
		if reflect.TypeOf(o) == reflect.TypeOf(to) && client.ObjectKeyFromObject(o) == key {
			reflect.ValueOf(to).Elem().Set(reflect.ValueOf(o.DeepCopyObject()).Elem())
			return nil
		}
	}
	return p.live.Get(ctx, key, to, opts...)
}

// List implements client.Reader, for all objects of a kind. A kind that the cluster does
// not serve has those that are proposed.
func (p *proposed) List(ctx context.Context, to client.ObjectList, opts ...client.ListOption) error {
	var mine []client.Object
	for _, o := range p.objects {
		if kindOf(o)+"List" == kindOf(to) {
			mine = append(mine, o)
		}
	}
	if err := p.live.List(ctx, to, opts...); err != nil && (len(mine) == 0 || !meta.IsNoMatchError(err)) {
		return err
	}
	there, err := meta.ExtractList(to)
	if err != nil {
		return err
	}
	var all []runtime.Object
	for _, o := range there {
		if !replaces(mine, o.(client.Object)) {
			all = append(all, o)
		}
	}
	for _, o := range mine {
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
