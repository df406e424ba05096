package preview

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/operator/modulestore/loader"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/survey"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/source"
)

// Modules are files that replace the sources of modules, by name: that of a
// ClusterPolicyModule, or namespace/name of a PolicyModule.
type Modules map[string][]source.File

// Reading is the policies and finalizers in force at one moment.
type Reading struct {
	Policies   *policies.Set
	Finalizers []*policies.Finalizer

	// NotFetched says of policies, by name, why their module could not be fetched from here.
	// Where the operator runs, it may be.
	NotFetched map[string]string

	close func()
}

// Close frees the modules. They must not be evaluated afterwards.
func (r *Reading) Close() { r.close() }

// ReadPolicies reads the policies in force as the operator does: from the cluster, or from the
// files of a survey if config is nil. With a cluster, the objects of with are treated as
// applied: Gleaner's resources with their defaults, ConfigMaps and Secrets.
func ReadPolicies(
	ctx context.Context, s *survey.Survey, config *rest.Config, overrides Modules, with []*unstructured.Unstructured, now time.Time,
) (*Reading, error) {
	from, err := readerOf(s, config, with)
	if err != nil {
		return nil, err
	}
	override := func(module string) ([]source.File, bool) {
		_, name, _ := strings.Cut(module, " ")
		files, ok := overrides[name]
		return files, ok
	}
	modules, err := loader.New(loader.Options{Reader: from, Override: override, Log: logr.Discard(), Now: func() time.Time { return now }})
	if err != nil {
		return nil, err
	}
	publisher, err := policyset.NewPublisher(policyset.Options{
		Reader: from, Absent: s.Absent, Store: modules.Store, Log: logr.Discard(),
		Rules: policyset.Rules{CheckGrants: intents.Check, Overridden: func(module string) bool {
			_, is := override(module)
			return is
		}},
	})
	if err != nil {
		return nil, err
	}
	r := &Reading{NotFetched: map[string]string{}, close: modules.Start(ctx)}
	snapshot, err := publisher.Settle(ctx)
	if err != nil {
		r.Close()
		return nil, err
	}
	r.take(snapshot)
	return r, nil
}

// take takes what is in a snapshot.
func (r *Reading) take(s *policyset.Snapshot) {
	r.Policies, r.Finalizers = s.Set, s.Serving()
	notFetched := map[string]string{}
	for _, m := range s.Modules {
		if m.Problem.Condition == v1alpha1.ConditionFetched || !m.Loading.IsZero() {
			notFetched[m.String()] = m.Problem.Message
		}
	}
	for _, p := range s.Policies {
		if why, is := notFetched[p.Policy.Module]; is {
			r.NotFetched[p.Policy.String()] = p.Policy.Module + ": " + why
		}
	}
}

// readerOf returns what reads the resources that policies are made of.
func readerOf(s *survey.Survey, config *rest.Config, with []*unstructured.Unstructured) (client.Reader, error) {
	switch {
	case config == nil:
		return fileReader{s}, nil
	case len(with) != 0:
		return newProposedReader(config, with)
	default:
		return policyset.NewClient(config)
	}
}

// fileReader reads the objects of a survey of files.
type fileReader struct{ survey *survey.Survey }

// Get implements client.Reader.
func (f fileReader) Get(_ context.Context, key client.ObjectKey, to client.Object, _ ...client.GetOption) error {
	kind := kindOf(to)
	for _, item := range f.survey.Items {
		if item.Resource.Kind == kind && item.Meta.Name == key.Name && item.Meta.Namespace == key.Namespace {
			return runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object.Object, to)
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, key.Name)
}

// List implements client.Reader.
func (f fileReader) List(_ context.Context, to client.ObjectList, _ ...client.ListOption) error {
	kind := strings.TrimSuffix(kindOf(to), "List")
	var items []any
	for _, item := range f.survey.Items {
		if item.Resource.Kind == kind && item.Resource.Version.Group == v1alpha1.GroupVersion.Group {
			items = append(items, item.Object.Object)
		}
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"items": items}, to); err != nil {
		return fmt.Errorf("read %s from the file: %w", kind, err)
	}
	return nil
}

// kindOf returns the kind of an object, which is the name of its Go type.
func kindOf(o any) string {
	name := fmt.Sprintf("%T", o)
	return name[strings.LastIndex(name, ".")+1:]
}
