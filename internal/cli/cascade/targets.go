package cascade

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/input"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/operator/cascade"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

// name is an object in the arguments, KIND/NAME.
type name struct{ kind, name string }

// String returns KIND/NAME.
func (n name) String() string { return n.kind + "/" + n.name }

// parseNames parses KIND/NAME… or KIND NAME…
func parseNames(args []string) (names []name, err error) {
	if len(args) > 1 && !strings.Contains(args[0], "/") {
		var written []string
		for _, arg := range args[1:] {
			if strings.Contains(arg, "/") {
				return nil, exit.Usagef("%q after %q: write KIND/NAME for each object, or KIND NAME NAME", arg, args[0])
			}
			written = append(written, args[0]+"/"+arg)
		}
		args = written
	}
	if len(args) == 0 {
		return nil, exit.Usagef("an object is required: write KIND/NAME or KIND NAME, such as deployment/web")
	}
	for _, arg := range args {
		kind, of, err := kubectl.ParseTarget([]string{arg})
		if err != nil {
			return nil, err
		}
		n := name{kind, of}
		if slices.Contains(names, n) {
			return nil, exit.Usagef("%s is named twice", n)
		}
		names = append(names, n)
	}
	return names, nil
}

// target is a named object. If its Object is nil, the object is gone.
type target struct {
	name
	kubectl.Target
	ownerKind string // kind in owner references; set if the object is gone
}

// gone reports whether there is no object.
func (t target) gone() bool { return t.Object == nil }

// readTargets reads the named objects. With missing, one that does not exist is gone.
func readTargets(ctx context.Context, f *kubectl.Flags, names []name, missing bool) ([]target, error) {
	targets := make([]target, len(names))
	for i, n := range names {
		read, err := f.Target(ctx, []string{n.kind, n.name})
		targets[i] = target{name: n, Target: read}
		if apierrors.IsNotFound(err) && missing {
			targets[i], err = goneTarget(f, n)
		}
		if err != nil {
			return nil, err
		}
	}
	return targets, nil
}

// goneTarget returns the target for an object that does not exist.
func goneTarget(f *kubectl.Flags, n name) (target, error) {
	mapping, err := f.Mapping(n.kind)
	if err != nil {
		return target{}, err
	}
	of := kubectl.Target{Resource: mapping.Resource, Namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace}
	return target{name: n, Target: of, ownerKind: mapping.GroupVersionKind.Kind}, nil
}

// checkRead returns an error if an object is not in the survey: then it can't be watched either.
func checkRead(a *input.Input, targets []target) error {
	for _, t := range targets {
		if t.gone() {
			continue
		}
		if _, ok := a.Survey.Items[graph.IDOf(t.Object.GetUID())]; !ok {
			return fmt.Errorf("%s can't be followed: it was just deleted, or you may not list and watch its type; run the command again", t.Target)
		}
	}
	return nil
}

// scope returns the namespace in which dependents of the targets may be; "" for all.
func scope(a *input.Input, targets []target) string {
	for _, t := range targets {
		if !t.Namespaced {
			return ""
		}
	}
	return a.Namespace
}

var (
	definitions = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	namespaces  = schema.GroupResource{Resource: "namespaces"}
)

// roots returns the roots of the targets' cascades. If a target is gone, these are the owners with its
// kind and name in owner references.
func roots(a *input.Input, targets []target) (all []cascade.Root) {
	for _, t := range targets {
		if t.gone() {
			all = append(all, goneRoots(a, t)...)
			continue
		}
		root := cascade.Root{Object: graph.ObjectOf(t.Object.GroupVersionKind(), t.Object)}
		switch t.Resource.GroupResource() {
		case namespaces:
			root.Contents = t.Object.GetName()
		case definitions:
			root.Instances.Group, _, _ = unstructured.NestedString(t.Object.Object, "spec", "group")
			root.Instances.Kind, _, _ = unstructured.NestedString(t.Object.Object, "spec", "names", "kind")
		}
		all = append(all, root)
	}
	return all
}

func goneRoots(a *input.Input, t target) (all []cascade.Root) {
	found := map[types.UID]struct{}{}
	for _, item := range a.Survey.Items {
		for _, ref := range item.Meta.OwnerReferences {
			_, exists := a.Survey.Items[graph.IDOf(ref.UID)]
			_, known := found[ref.UID]
			gv, _ := schema.ParseGroupVersion(ref.APIVersion)
			if exists || known || ref.Name != t.name.name || ref.Kind != t.ownerKind || gv.Group != t.Resource.Group || t.Namespaced && item.Meta.Namespace != a.Namespace {
				continue
			}
			found[ref.UID] = struct{}{}
			o := graph.Object{UID: ref.UID, Name: ref.Name, Kind: gv.WithKind(ref.Kind)}
			if t.Namespaced {
				o.Namespace = item.Meta.Namespace
			}
			all = append(all, cascade.Root{Object: o, Gone: true})
		}
	}
	slices.SortFunc(all, func(a, b cascade.Root) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return all
}

// track returns a tracker of the targets' cascades.
func track(a *input.Input, targets []target) *cascade.Tracker {
	return cascade.New(roots(a, targets), objects(a.Survey))
}

// objects returns all objects of a survey, ordered by kind and name.
func objects(s *survey.Survey) []graph.Object {
	all := make([]graph.Object, 0, len(s.Items))
	for _, item := range s.Items {
		all = append(all, s.Object(item))
	}
	slices.SortFunc(all, func(a, b graph.Object) int {
		return strings.Compare(a.Kind.Kind+"\x00"+a.Namespace+"\x00"+a.Name, b.Kind.Kind+"\x00"+b.Namespace+"\x00"+b.Name)
	})
	return all
}

// arguments returns the targets as arguments of a command.
func arguments(a *input.Input, targets []target) string {
	var args []string
	namespaced := false
	for _, t := range targets {
		args = append(args, t.name.String())
		namespaced = namespaced || t.Namespaced
	}
	if namespaced {
		args = append(args, "-n", a.Namespace)
	}
	return strings.Join(args, " ")
}

// joinNames returns the targets as text.
func joinNames(targets []target) string {
	names := make([]string, len(targets))
	for i, t := range targets {
		names[i] = t.name.String()
	}
	return strings.Join(names, ", ")
}
