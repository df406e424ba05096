package kubectl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
)

// Target is the object that a command is run for.
type Target struct {
	Resource   schema.GroupVersionResource
	Namespaced bool
	Object     *unstructured.Unstructured
}

// String returns the object in kubectl's format.
func (t Target) String() string {
	return t.Resource.GroupResource().String() + " " + fmt.Sprintf("%q", t.Object.GetName())
}

// ParseTarget parses the arguments KIND/NAME or KIND NAME.
func ParseTarget(args []string) (kind, name string, err error) {
	const write = "write KIND/NAME or KIND NAME, such as deployment/web, deploy web or deployments.apps/web"
	switch len(args) {
	case 1:
		kind, name, _ = strings.Cut(args[0], "/")
	case 2:
		if strings.Contains(args[0]+args[1], "/") {
			return "", "", exit.Usagef("expected one object, got %q and %q", args[0], args[1])
		}
		kind, name = args[0], args[1]
	case 0:
		return "", "", exit.Usagef("an object is required: %s", write)
	default:
		return "", "", exit.Usagef("expected one object, got %d arguments: %s", len(args), write)
	}
	if kind == "" || name == "" || strings.Contains(name, "/") || strings.Contains(kind, ",") {
		return "", "", exit.Usagef("invalid object %q: %s", strings.Join(args, " "), write)
	}
	return kind, name, nil
}

// Target reads the object that the arguments name from the cluster. Errors are in kubectl's
// format.
func (f *Flags) Target(ctx context.Context, args []string) (Target, error) {
	kind, name, err := ParseTarget(args)
	if err != nil {
		return Target{}, err
	}
	namespace, err := f.ResolveNamespace()
	if err != nil {
		return Target{}, err
	}
	if err := ctx.Err(); err != nil {
		return Target{}, err
	}
	infos, err := resource.NewBuilder(f).Unstructured().NamespaceParam(namespace).DefaultNamespace().
		ResourceTypeOrNameArgs(false, kind, name).Do().Infos()
	if err != nil {
		return Target{}, fmt.Errorf("%w", err)
	}
	o, ok := infos[0].Object.(*unstructured.Unstructured)
	if !ok {
		return Target{}, fmt.Errorf("read %s %s: it is a %T", kind, name, infos[0].Object)
	}
	return Target{infos[0].Mapping.Resource, infos[0].Mapping.Scope.Name() == meta.RESTScopeNameNamespace, o}, nil
}

// Load reads the objects in files. Lists are flattened.
func Load(files []string) ([]*unstructured.Unstructured, error) {
	infos, err := resource.NewLocalBuilder().Unstructured().Local().
		FilenameParam(false, &resource.FilenameOptions{Filenames: files}).Flatten().Do().Infos()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", strings.Join(files, ", "), err)
	}
	var objects []*unstructured.Unstructured
	for _, info := range infos {
		o, ok := info.Object.(*unstructured.Unstructured)
		if !ok {
			return nil, fmt.Errorf("read %s: unexpected %T", info.Source, info.Object)
		}
		objects = append(objects, o)
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("no objects found in %s: use the format of kubectl get -o yaml", strings.Join(files, ", "))
	}
	return objects, nil
}

// Find finds the object that the arguments name among objects from files. Without a namespace,
// the name must be unique across namespaces.
func Find(mapper meta.RESTMapper, objects []*unstructured.Unstructured, namespace string, args []string) (Target, error) {
	kind, name, err := ParseTarget(args)
	if err != nil {
		return Target{}, err
	}
	mapping, err := MappingIn(mapper, kind)
	if err != nil {
		return Target{}, err
	}
	t := Target{Resource: mapping.Resource, Namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace}
	var in []string
	for _, o := range objects {
		if o.GroupVersionKind().GroupKind() != mapping.GroupVersionKind.GroupKind() || o.GetName() != name ||
			t.Namespaced && namespace != "" && o.GetNamespace() != namespace {
			continue
		}
		t.Object = o
		in = append(in, o.GetNamespace())
	}
	switch {
	case len(in) == 0:
		where := ""
		if namespace != "" {
			where = " in namespace " + namespace
		}
		return Target{}, fmt.Errorf("%s %q not found%s in the files", mapping.Resource.GroupResource(), name, where)
	case len(slices.Compact(slices.Sorted(slices.Values(in)))) > 1:
		return Target{}, exit.Usagef("%s %q exists in namespaces %s: select one with -n", mapping.Resource.GroupResource(), name, joinWords(in))
	}
	return t, nil
}

// MappingIn returns the resource with a name, among those in files.
func MappingIn(mapper meta.RESTMapper, word string) (*meta.RESTMapping, error) {
	mapping, err := mappingOf(mapper, word)
	if meta.IsNoMatchError(err) {
		err = fmt.Errorf("the files have no resource type %q", word)
	}
	return mapping, err
}

// mappingOf returns the mapping for the name of a resource or kind, with or without version
// and group.
func mappingOf(mapper meta.RESTMapper, word string) (*meta.RESTMapping, error) {
	full, gr := schema.ParseResourceArg(strings.ToLower(word))
	var gvk schema.GroupVersionKind
	var err error
	if full != nil {
		gvk, _ = mapper.KindFor(*full)
	}
	if gvk.Empty() {
		gvk, err = mapper.KindFor(gr.WithVersion(""))
	}
	if err != nil {
		return nil, err
	}
	return mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
}
