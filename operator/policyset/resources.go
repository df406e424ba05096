package policyset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/resources"
	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/livelist"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
)

// Resources are the custom resources as they were read.
type Resources struct{ resources.Resources }

// Read lists all resources. A kind that is not served has none. The error says which kind
// could not be listed; then nothing is known.
func Read(ctx context.Context, from client.Reader, absent livelist.Absent) (Resources, error) {
	all, err := resources.Read(func(kind string, into resources.List) error {
		_, err := livelist.List(ctx, from, absent, kind, into)
		return err
	})
	return Resources{all}, err
}

// fingerprint identifies policies and modules by their UIDs and generations. Finalizers
// do not count: no webhook asks about them.
func (r *Resources) fingerprint() string {
	var lines []string
	for _, p := range r.Policies {
		lines = append(lines, fmt.Sprintf("%s %s %d\n", p.Kind, p.Meta.UID, p.Meta.Generation))
	}
	for _, m := range r.Modules {
		lines = append(lines, fmt.Sprintf("%s %s %d\n", m.Kind, m.Meta.UID, m.Meta.Generation))
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(fmt.Sprint(lines)))
	return hex.EncodeToString(sum[:6])
}

// modules returns the modules without their states.
func (r *Resources) modules() []*Module {
	list := make([]*Module, 0, len(r.Modules))
	for _, m := range r.Modules {
		list = append(list, &Module{Object: m.Object, Kind: m.Kind, Key: client.ObjectKeyFromObject(m.Object), Spec: m.Spec})
	}
	return list
}

// ModuleSources returns the modules for the module store.
func (r *Resources) ModuleSources() []modulestore.Resource {
	modules := r.modules()
	list := make([]modulestore.Resource, 0, len(modules))
	for _, m := range modules {
		list = append(list, modulestore.Resource{
			Ref: m.Ref(), UID: m.Object.GetUID(), Generation: m.Object.GetGeneration(), Created: m.Object.GetCreationTimestamp().Time,
			Terminating: m.Object.GetDeletionTimestamp() != nil, Spec: m.Spec,
		})
	}
	return list
}

// policies returns the policies before they are built.
func (r *Resources) policies() []*Policy {
	list := make([]*Policy, 0, len(r.Policies))
	for _, p := range r.Policies {
		list = append(list, &Policy{Spec: p.Spec, Declaration: Declaration{
			Object: p.Object, Kind: p.Kind, Key: client.ObjectKeyFromObject(p.Object),
			Selection: Selection{p.Spec.Resources, p.Spec.NamespaceSelector, p.Spec.ObjectSelector, p.Spec.MatchConditions},
		}})
	}
	return list
}

// finalizers returns the finalizers before they are built.
func (r *Resources) finalizers() []*Finalizer {
	list := make([]*Finalizer, 0, len(r.Finalizers))
	for _, f := range r.Finalizers {
		list = append(list, &Finalizer{Spec: f.Spec, Declaration: Declaration{
			Object: f.Object, Kind: f.Kind, Key: client.ObjectKeyFromObject(f.Object),
			Selection: Selection{f.Spec.Resources, f.Spec.NamespaceSelector, f.Spec.ObjectSelector, f.Spec.MatchConditions},
		}})
	}
	return list
}

// NewClient returns a client of Gleaner's and built-in types that reads live. Types are mapped when they are
// asked for, since they may not be served yet.
func NewClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("make scheme: %w", err)
		}
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{HTTPClient: httpClient, Scheme: scheme})
}

// retentions returns the retention policies before they are built.
func (r *Resources) retentions() []*Retention {
	list := make([]*Retention, 0, len(r.Retentions))
	for _, p := range r.Retentions {
		selection := Selection{NamespaceSelector: p.Spec.NamespaceSelector, ObjectSelector: p.Spec.ObjectSelector, MatchConditions: p.Spec.MatchConditions}
		for _, rule := range p.Spec.Resources {
			selection.Resources = append(selection.Resources, v1alpha1.ResourceRule(rule))
		}
		list = append(list, &Retention{Spec: p.Spec, Declaration: Declaration{
			Object: p.Object, Kind: p.Kind, Key: client.ObjectKeyFromObject(p.Object), Selection: selection,
		}})
	}
	return list
}
