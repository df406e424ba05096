package survey

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// errFiles is what is known of objects that are in no file.
var errFiles = errors.New("it is not in the file, which may not have everything")

// Files makes a Survey of objects from files. What is not among them is not known:
// it may be there for all that the files tell.
func Files(objects []*unstructured.Unstructured, now func() time.Time) (*Survey, error) {
	s := &Survey{Graph: graph.New(), Items: map[graph.ID]Item{}, Twins: map[graph.ID][]catalog.Resource{}, Files: true}
	s.Types, s.Mapper = typesOf(objects)
	s.Served = func(context.Context, schema.GroupVersionResource) (bool, error) { return false, errFiles }
	s.Absent = func(_ context.Context, gk schema.GroupKind) (bool, error) {
		_, known := s.Types.Preferred(gk)
		return !known, nil
	}
	s.Client = nobody{}
	by := map[catalog.Resource][]Item{}
	for i, o := range objects {
		r, ok := s.Types.Preferred(o.GroupVersionKind().GroupKind())
		if !ok {
			return nil, fmt.Errorf("object %d of the files has no kind or no apiVersion: write both", i+1)
		}
		item, err := itemOf(r, o)
		if err != nil {
			return nil, err
		}
		by[r] = append(by[r], item)
	}
	for r, items := range by {
		s.add(r, items)
	}
	s.wire(now)
	return s, nil
}

// itemOf takes an object's metadata out of it. What the API server would have given
// it is made up where it is missing.
func itemOf(r catalog.Resource, o *unstructured.Unstructured) (Item, error) {
	o = o.DeepCopy()
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("file:%s:%s/%s", r.GroupKind(), o.GetNamespace(), o.GetName())))
	}
	if o.GetResourceVersion() == "" {
		o.SetResourceVersion("1")
	}
	m := &metav1.PartialObjectMetadata{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"metadata": o.Object["metadata"]}, m); err != nil {
		return Item{}, fmt.Errorf("read %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return Item{Resource: r, Meta: lean(m), Whole: o}, nil
}

// short are the short names of the types that every cluster has; those of others
// are in their CustomResourceDefinitions.
var short = map[string][]string{
	"configmaps": {"cm"}, "persistentvolumeclaims": {"pvc"}, "persistentvolumes": {"pv"}, "pods": {"po"}, "services": {"svc"},
	"limitranges": {"limits"}, "resourcequotas": {"quota"}, "events": {"ev"}, "events.events.k8s.io": {"ev"},
	"certificatesigningrequests.certificates.k8s.io": {"csr"}, "priorityclasses.scheduling.k8s.io": {"pc"},
	"namespaces": {"ns"}, "nodes": {"no"}, "serviceaccounts": {"sa"}, "replicationcontrollers": {"rc"}, "endpoints": {"ep"},
	"deployments.apps": {"deploy"}, "replicasets.apps": {"rs"}, "statefulsets.apps": {"sts"}, "daemonsets.apps": {"ds"},
	"cronjobs.batch": {"cj"}, "ingresses.networking.k8s.io": {"ing"}, "networkpolicies.networking.k8s.io": {"netpol"},
	"poddisruptionbudgets.policy": {"pdb"}, "storageclasses.storage.k8s.io": {"sc"},
	"horizontalpodautoscalers.autoscaling":           {"hpa"},
	"customresourcedefinitions.apiextensions.k8s.io": {"crd", "crds"},
	"gcpolicies.gleaner.dev":                         {"gcp"}, "clustergcpolicies.gleaner.dev": {"cgcp"},
}

// found are the types of files.
type found struct {
	lists  map[schema.GroupVersion]*metav1.APIResourceList
	scopes map[schema.GroupKind]bool // whether they are known to be namespaced
	mapper *meta.DefaultRESTMapper
}

// typesOf says what types there are, by the objects and their references to owners,
// and by CustomResourceDefinitions.
func typesOf(objects []*unstructured.Unstructured) (*catalog.Catalog, meta.RESTMapper) {
	f := &found{
		lists: map[schema.GroupVersion]*metav1.APIResourceList{}, scopes: map[schema.GroupKind]bool{},
		mapper: meta.NewDefaultRESTMapper(nil),
	}
	for _, o := range objects {
		if gk := o.GroupVersionKind().GroupKind(); o.GetNamespace() != "" {
			f.scopes[gk] = true
		}
	}
	for _, o := range objects {
		f.define(o)
	}
	for _, o := range objects {
		f.guess(o.GroupVersionKind())
		for _, ref := range o.GetOwnerReferences() {
			f.guess(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
		}
	}
	settings := catalog.Settings{Ignored: catalog.DefaultIgnored(), Local: map[schema.GroupVersion]bool{}}
	var lists []*metav1.APIResourceList
	for gv, list := range f.lists {
		settings.Local[gv] = true
		lists = append(lists, list)
	}
	return catalog.Build(nil, lists, settings), f.mapper
}

// define takes in a type that a CustomResourceDefinition defines.
func (f *found) define(o *unstructured.Unstructured) {
	if o.GetKind() != "CustomResourceDefinition" {
		return
	}
	text := func(fields ...string) string {
		value, _, _ := unstructured.NestedString(o.Object, fields...)
		return value
	}
	group, kind, plural := text("spec", "group"), text("spec", "names", "kind"), text("spec", "names", "plural")
	if kind == "" || plural == "" {
		return
	}
	f.scopes[schema.GroupKind{Group: group, Kind: kind}] = text("spec", "scope") == "Namespaced"
	names, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "names", "shortNames")
	versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
	for _, v := range versions {
		if version, _ := v.(map[string]any)["name"].(string); version != "" {
			f.add(schema.GroupVersionKind{Group: group, Version: version, Kind: kind}, plural, strings.ToLower(kind), names)
		}
	}
}

// guess takes in a type by what its name in the plural usually is.
func (f *found) guess(gvk schema.GroupVersionKind) {
	if gvk.Kind == "" || gvk.Version == "" {
		return
	}
	plural, singular := meta.UnsafeGuessKindToResource(gvk)
	f.add(gvk, plural.Resource, singular.Resource, short[plural.GroupResource().String()])
}

func (f *found) add(gvk schema.GroupVersionKind, plural, singular string, names []string) {
	gv := gvk.GroupVersion()
	if f.lists[gv] == nil {
		f.lists[gv] = &metav1.APIResourceList{GroupVersion: gv.String()}
	}
	for _, known := range f.lists[gv].APIResources {
		if known.Kind == gvk.Kind {
			return
		}
	}
	namespaced := f.scopes[gvk.GroupKind()]
	f.lists[gv].APIResources = append(f.lists[gv].APIResources, metav1.APIResource{
		Name: plural, Kind: gvk.Kind, Namespaced: namespaced, Verbs: metav1.Verbs{"delete", "get", "list", "patch", "watch"},
	})
	scope := meta.RESTScopeRoot
	if namespaced {
		scope = meta.RESTScopeNamespace
	}
	for _, name := range append(names, plural) { // the plural last: it is the one that the kind stands for
		f.mapper.AddSpecific(gvk, gv.WithResource(name), gv.WithResource(name), scope)
	}
	f.mapper.AddSpecific(gvk, gv.WithResource(plural), gv.WithResource(singular), scope)
}

// nobody is a client that can be asked for nothing but objects, and has none.
type nobody struct{ metadata.ResourceInterface }

// Resource implements metadata.Interface.
func (n nobody) Resource(schema.GroupVersionResource) metadata.Getter { return n }

// Namespace implements metadata.Getter.
func (n nobody) Namespace(string) metadata.ResourceInterface { return n }

// Get implements metadata.ResourceInterface.
func (nobody) Get(context.Context, string, metav1.GetOptions, ...string) (*metav1.PartialObjectMetadata, error) {
	return nil, errFiles
}
