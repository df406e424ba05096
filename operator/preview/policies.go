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
	"github.com/gleaner-dev/gleaner/operator/modules"
	"github.com/gleaner-dev/gleaner/operator/survey"
	"github.com/gleaner-dev/gleaner/policies/source"
)

// Modules are the files of modules that are taken in place of what their resources
// say, by name: of a cluster's or of a namespace's as namespace/name.
type Modules map[string][]source.File

// Policies reads the policies in force, as the operator does: from the cluster, or
// from the files of a survey for a nil config. With a cluster, what is proposed is taken
// as if it were applied: Gleaner's resources with their defaults, ConfigMaps and Secrets.
func Policies(
	ctx context.Context, s *survey.Survey, config *rest.Config, given Modules, with []*unstructured.Unstructured, now time.Time,
) (*modules.Reading, error) {
	o := modules.Options{
		Config: config, Log: logr.Discard(), Now: func() time.Time { return now }, Absent: s.Absent, CheckGrants: intents.Check,
		Serves: func(schema.GroupResource) (served, namespaced bool) { return true, true },
		Given: func(module string) ([]source.File, bool) {
			_, name, _ := strings.Cut(module, " ")
			files, ok := given[name]
			return files, ok
		},
	}
	if config == nil {
		o.Config, o.Source = &rest.Config{Host: "http://files.invalid"}, files{s}
	}
	if config != nil && len(with) != 0 {
		source, err := propose(config, with)
		if err != nil {
			return nil, err
		}
		o.Source = source
	}
	return modules.Read(ctx, o)
}

// files reads objects of a survey that is of files.
type files struct{ survey *survey.Survey }

// Get implements client.Reader.
func (f files) Get(_ context.Context, key client.ObjectKey, to client.Object, _ ...client.GetOption) error {
	kind := kindOf(to)
	for _, item := range f.survey.Items {
		if item.Resource.Kind == kind && item.Meta.Name == key.Name && item.Meta.Namespace == key.Namespace {
			return runtime.DefaultUnstructuredConverter.FromUnstructured(item.Whole.Object, to)
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, key.Name)
}

// List implements client.Reader.
func (f files) List(_ context.Context, to client.ObjectList, _ ...client.ListOption) error {
	kind := strings.TrimSuffix(kindOf(to), "List")
	var items []any
	for _, item := range f.survey.Items {
		if item.Resource.Kind == kind && item.Resource.Version.Group == v1alpha1.GroupVersion.Group {
			items = append(items, item.Whole.Object)
		}
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"items": items}, to); err != nil {
		return fmt.Errorf("read %s from the file: %w", kind, err)
	}
	return nil
}

// kindOf is the kind of an object, which is what its Go type is called.
func kindOf(o any) string {
	name := fmt.Sprintf("%T", o)
	return name[strings.LastIndex(name, ".")+1:]
}
