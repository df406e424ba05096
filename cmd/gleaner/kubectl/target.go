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
)

// Target is an object that a command was asked about.
type Target struct {
	Resource   schema.GroupVersionResource
	Namespaced bool
	Object     *unstructured.Unstructured
}

// String is the object as kubectl names it.
func (t Target) String() string {
	return t.Resource.GroupResource().String() + " " + fmt.Sprintf("%q", t.Object.GetName())
}

// Named checks that arguments name one object, as KIND/NAME or as KIND NAME.
func Named(args []string) (kind, name string, err error) {
	const write = "write KIND/NAME or KIND NAME, such as deployment/web, deploy web or deployments.apps/web"
	switch len(args) {
	case 1:
		kind, name, _ = strings.Cut(args[0], "/")
	case 2:
		if strings.Contains(args[0]+args[1], "/") {
			return "", "", Usage("%q and %q are two objects: name one", args[0], args[1])
		}
		kind, name = args[0], args[1]
	case 0:
		return "", "", Usage("no object is named: %s", write)
	default:
		return "", "", Usage("there are %d arguments: %s", len(args), write)
	}
	if kind == "" || name == "" || strings.Contains(name, "/") || strings.Contains(kind, ",") {
		return "", "", Usage("%q is no object: %s", strings.Join(args, " "), write)
	}
	return kind, name, nil
}

// Target reads the object that the arguments name from the cluster. An error of
// reading is as kubectl has it.
func (f *Flags) Target(ctx context.Context, args []string) (Target, error) {
	kind, name, err := Named(args)
	if err != nil {
		return Target{}, err
	}
	namespace, err := f.InNamespace()
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

// Load reads the objects of files. Lists are taken apart.
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
			return nil, fmt.Errorf("read %s: there is a %T in it", info.Source, info.Object)
		}
		objects = append(objects, o)
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("there is no object in %s: write one as kubectl get -o yaml does", strings.Join(files, ", "))
	}
	return objects, nil
}

// Find finds the object that the arguments name among those of files. Without a
// namespace one of any namespace is found, if there is only one.
func Find(mapper meta.RESTMapper, objects []*unstructured.Unstructured, namespace string, args []string) (Target, error) {
	kind, name, err := Named(args)
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
		return Target{}, fmt.Errorf("there is no %s %q%s in the file", mapping.Resource.GroupResource(), name, where)
	case len(slices.Compact(slices.Sorted(slices.Values(in)))) > 1:
		return Target{}, Usage("%s %q is in the namespaces %s: name one with -n", mapping.Resource.GroupResource(), name, list(in))
	}
	return t, nil
}

// MappingIn is the resource of files that a word names.
func MappingIn(mapper meta.RESTMapper, word string) (*meta.RESTMapping, error) {
	mapping, err := mappingOf(mapper, word)
	if meta.IsNoMatchError(err) {
		err = fmt.Errorf("there is no resource type %q in the files, which are asked in place of the cluster", word)
	}
	return mapping, err
}

// mappingOf is what a word stands for that names a resource or a kind, by whatever
// name.
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
