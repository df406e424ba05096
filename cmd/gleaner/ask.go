package main

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

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

// asked is what a command has been asked about, and what was read for that.
type asked struct {
	target    kubectl.Target // without an object where a whole namespace is asked about
	config    *rest.Config   // nil: of files
	namespace string         // that was asked for, or the context's
	survey    *survey.Survey
}

// id is what the graph knows the target by.
func (a *asked) id() graph.ID { return graph.IDOf(a.target.Object.GetUID()) }

// ask finds the object that the arguments name, and reads what can have to do with
// it: from the cluster, or from files.
func ask(ctx context.Context, f *kubectl.Flags, args []string, errOut io.Writer) (*asked, error) {
	a := &asked{}
	var err error
	if len(f.Files) != 0 {
		return a, a.load(ctx, f, args)
	}
	if a.namespace, err = f.InNamespace(); err != nil {
		return nil, err
	}
	if a.config, err = f.Config(); err != nil {
		return nil, err
	}
	where := a.namespace
	if len(args) != 0 {
		if a.target, err = f.Target(ctx, args); err != nil {
			return nil, err
		}
		where = a.target.Object.GetNamespace() // what an object owns is where it is, or anywhere if it is nowhere
	}
	if f.AllNamespaces {
		where = ""
	}
	a.survey, err = read(ctx, a.config, where, a.namespace, errOut)
	return a, err
}

// load finds the object in files.
func (a *asked) load(ctx context.Context, f *kubectl.Flags, args []string) error {
	objects, err := loadResources(ctx, f.Files)
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
	if a.survey, err = survey.Files(objects, time.Now); err != nil {
		return err
	}
	if implied != nil {
		a.survey.Implied = implied.GetName()
	}
	if a.namespace, err = f.InNamespace(); err != nil || len(args) == 0 {
		return err
	}
	if a.target, err = kubectl.Find(a.survey.Mapper, objects, a.namespace, args); err != nil {
		return err
	}
	for _, item := range a.survey.Items { // which has a UID in any case
		if item.Resource.Version.GroupResource() == a.target.Resource.GroupResource() &&
			item.Meta.Name == a.target.Object.GetName() && item.Meta.Namespace == a.target.Object.GetNamespace() {
			a.target.Object = item.Whole
		}
	}
	return nil
}

// impliedNamespace is the namespace that the arguments name, if the files have objects
// in it but not itself, as what kubectl get all -o yaml writes.
func impliedNamespace(objects []*unstructured.Unstructured, args []string) (*unstructured.Unstructured, error) {
	if len(args) == 0 {
		return nil, nil
	}
	kind, name, err := kubectl.Named(args)
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
		return nil, fmt.Errorf("there is no namespace %q in the files, and no object in it", name)
	}
	implied := &unstructured.Unstructured{}
	implied.SetAPIVersion("v1")
	implied.SetKind("Namespace")
	implied.SetName(name)
	return implied, nil
}

// read reads a cluster, and shows on a terminal how far it is.
func read(ctx context.Context, config *rest.Config, namespace, fallback string, errOut io.Writer) (*survey.Survey, error) {
	var done, of atomic.Int64
	over := kubectl.Progress(errOut, func() string {
		return fmt.Sprintf("Reading the cluster: %d of %d types", done.Load(), of.Load())
	})
	defer over()
	return survey.Live(ctx, survey.Options{
		Config: config, Namespace: namespace, Fallback: fallback, Now: time.Now,
		Listed: func(d, all int) {
			done.Store(int64(d))
			of.Store(int64(all))
		},
	})
}
