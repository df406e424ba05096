// Package input reads the objects that gleaner graph and gleaner preview work on, from a cluster or
// from files.
package input

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

// Input is the target of a command and the objects that were read for it.
type Input struct {
	Target    kubectl.Target // without an object if the target is a whole namespace
	Config    *rest.Config   // nil: the objects are from files
	Namespace string         // from -n, or the context's
	Survey    *survey.Survey
}

// TargetID returns the ID of the target in the graph.
func (a *Input) TargetID() graph.ID { return graph.IDOf(a.Target.Object.GetUID()) }

// Read finds the object that the arguments name, and reads the objects that may be related
// to it, from the cluster or from files.
func Read(ctx context.Context, f *kubectl.Flags, args []string, errOut io.Writer) (*Input, error) {
	a := &Input{}
	var err error
	if len(f.Files) != 0 {
		return a, a.load(ctx, f, args)
	}
	if err := a.connect(f); err != nil {
		return nil, err
	}
	where := a.Namespace
	if len(args) != 0 {
		if a.Target, err = f.Target(ctx, args); err != nil {
			return nil, err
		}
		where = a.Target.Object.GetNamespace() // dependents are in the owner's namespace, or in any if the owner is cluster-scoped
	}
	if f.AllNamespaces {
		where = ""
	}
	return a, a.ReadCluster(ctx, where, errOut)
}

// Connect returns an Input without objects: of the namespace and the cluster of the flags.
func Connect(f *kubectl.Flags) (*Input, error) {
	a := &Input{}
	return a, a.connect(f)
}

func (a *Input) connect(f *kubectl.Flags) (err error) {
	if a.Namespace, err = f.ResolveNamespace(); err != nil {
		return err
	}
	a.Config, err = f.Config()
	return err
}

// load finds the target in files.
func (a *Input) load(ctx context.Context, f *kubectl.Flags, args []string) error {
	objects, err := LoadResources(ctx, f.Files)
	if err != nil {
		return err
	}
	implied, err := impliedNamespace(objects, args)
	if err != nil {
		return err
	}
	if implied != nil {
		objects = append(objects, implied)
	}
	if a.Survey, err = survey.Files(objects, time.Now); err != nil {
		return err
	}
	if implied != nil {
		a.Survey.ImpliedNamespace = implied.GetName()
	}
	if a.Namespace, err = f.ResolveNamespace(); err != nil || len(args) == 0 {
		return err
	}
	if a.Target, err = kubectl.Find(a.Survey.Mapper, objects, a.Namespace, args); err != nil {
		return err
	}
	for _, item := range a.Survey.Items { // each of which has a UID
		if item.Resource.Version.GroupResource() == a.Target.Resource.GroupResource() &&
			item.Meta.Name == a.Target.Object.GetName() && item.Meta.Namespace == a.Target.Object.GetNamespace() {
			a.Target.Object = item.Object
		}
	}
	return nil
}

// impliedNamespace returns the namespace that the arguments name, if the files contain
// objects in it but not the Namespace itself, as the output of kubectl get all -o yaml does.
func impliedNamespace(objects []*unstructured.Unstructured, args []string) (*unstructured.Unstructured, error) {
	if len(args) == 0 {
		return nil, nil
	}
	kind, name, err := kubectl.ParseTarget(args)
	if err != nil || !slices.Contains([]string{"ns", "namespace", "namespaces"}, strings.ToLower(kind)) {
		return nil, err
	}
	isIt := func(o *unstructured.Unstructured) bool {
		return o.GroupVersionKind().GroupKind() == schema.GroupKind{Kind: "Namespace"} && o.GetName() == name
	}
	inIt := func(o *unstructured.Unstructured) bool { return o.GetNamespace() == name }
	switch {
	case slices.ContainsFunc(objects, isIt):
		return nil, nil
	case !slices.ContainsFunc(objects, inIt):
		return nil, fmt.Errorf("namespace %q not found in the files, and no object in it", name)
	}
	implied := &unstructured.Unstructured{}
	implied.SetAPIVersion("v1")
	implied.SetKind("Namespace")
	implied.SetName(name)
	return implied, nil
}

// ReadCluster reads the objects of a namespace, or of all if it is "", and shows the progress on a
// terminal.
func (a *Input) ReadCluster(ctx context.Context, namespace string, errOut io.Writer) (err error) {
	var done, of atomic.Int64
	over := printer.Progress(errOut, func() string {
		return fmt.Sprintf("Reading the cluster: %d of %d types", done.Load(), of.Load())
	})
	defer over()
	a.Survey, err = survey.Live(ctx, survey.Options{
		Config: a.Config, Namespace: namespace, Fallback: a.Namespace, Now: time.Now,
		Progress: func(d, all int) {
			done.Store(int64(d))
			of.Store(int64(all))
		},
	})
	return err
}
