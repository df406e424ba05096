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

// errNotInFiles is the error for objects that are not in the files.
var errNotInFiles = errors.New("not in the file, which may be incomplete")

// Files returns a Survey of objects from files. Objects that are not in the files are
// unknown, since the files may be incomplete.
func Files(objects []*unstructured.Unstructured, now func() time.Time) (*Survey, error) {
	s := &Survey{Graph: graph.New(), Items: map[graph.ID]Item{}, EquivalentResources: map[graph.ID][]catalog.Resource{}, FromFiles: true}
	s.Types, s.Mapper = typesOf(objects)
	s.Serves = func(context.Context, schema.GroupVersionResource) (bool, error) { return false, errNotInFiles }
	s.Absent = func(_ context.Context, gk schema.GroupKind) (bool, error) {
		_, known := s.Types.Preferred(gk)
		return !known, nil
	}
	s.Client = emptyClient{}
	by := map[catalog.Resource][]Item{}
	for i, o := range objects {
		r, ok := s.Types.Preferred(o.GroupVersionKind().GroupKind())
		if !ok {
			return nil, fmt.Errorf("object %d of the files has no kind or no apiVersion: set both", i+1)
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
	s.initGatherer(now)
	return s, nil
}

// itemOf returns the item of an object. It generates missing metadata that the API server
// would have set.
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
	return Item{Resource: r, Meta: stripMetadata(m), Object: o}, nil
}

// shortNames contains the short names of built-in types; those of other types are in their
// CustomResourceDefinitions.
var shortNames = map[string][]string{
	"configmaps": {"cm"}, "persistentvolumeclaims": {"pvc"}, "persistentvolumes": {"pv"}, "pods": {"po"}, "services": {"svc"},
	"limitranges": {"limits"}, "resourcequotas": {"quota"}, "events": {"ev"}, "events.events.k8s.io": {"ev"},
	"certificatesigningrequests.certificates.k8s.io": {"csr"}, "priorityclasses.scheduling.k8s.io": {"pc"},
	"namespaces": {"ns"}, "nodes": {"no"}, "serviceaccounts": {"sa"}, "replicationcontrollers": {"rc"}, "endpoints": {"ep"},
	"deployments.apps": {"deploy"}, "replicasets.apps": {"rs"}, "statefulsets.apps": {"sts"}, "daemonsets.apps": {"ds"},
	"cronjobs.batch": {"cj"}, "ingresses.networking.k8s.io": {"ing"}, "networkpolicies.networking.k8s.io": {"netpol"},
	"poddisruptionbudgets.policy": {"pdb"}, "storageclasses.storage.k8s.io": {"sc"},
	"horizontalpodautoscalers.autoscaling":           {"hpa"},
	"customresourcedefinitions.apiextensions.k8s.io": {"crd", "crds"},
	"gcpolicies.gleaner.dev":                         {"gcpol"}, "clustergcpolicies.gleaner.dev": {"cgcpol"},
}

// typeCollector collects the types in files.
type typeCollector struct {
	lists  map[schema.GroupVersion]*metav1.APIResourceList
	scopes map[schema.GroupKind]bool // true if known to be namespaced
	mapper *meta.DefaultRESTMapper
}

// typesOf returns the types of the objects, of their owner references, and of
// CustomResourceDefinitions.
func typesOf(objects []*unstructured.Unstructured) (*catalog.Catalog, meta.RESTMapper) {
	f := &typeCollector{
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

// define adds the type that a CustomResourceDefinition defines.
func (f *typeCollector) define(o *unstructured.Unstructured) {
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

// guess adds a type with its usual plural name.
func (f *typeCollector) guess(gvk schema.GroupVersionKind) {
	if gvk.Kind == "" || gvk.Version == "" {
		return
	}
	plural, singular := meta.UnsafeGuessKindToResource(gvk)
	f.add(gvk, plural.Resource, singular.Resource, shortNames[plural.GroupResource().String()])
}

func (f *typeCollector) add(gvk schema.GroupVersionKind, plural, singular string, names []string) {
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
	for _, name := range append(names, plural) { // the plural last, since the kind maps to the last one
		f.mapper.AddSpecific(gvk, gv.WithResource(name), gv.WithResource(name), scope)
	}
	f.mapper.AddSpecific(gvk, gv.WithResource(plural), gv.WithResource(singular), scope)
}

// emptyClient is a client of a cluster without objects.
type emptyClient struct{ metadata.ResourceInterface }

// Resource implements metadata.Interface.
func (n emptyClient) Resource(schema.GroupVersionResource) metadata.Getter { return n }

// Namespace implements metadata.Getter.
func (n emptyClient) Namespace(string) metadata.ResourceInterface { return n }

// Get implements metadata.ResourceInterface.
func (emptyClient) Get(context.Context, string, metav1.GetOptions, ...string) (*metav1.PartialObjectMetadata, error) {
	return nil, errNotInFiles
}
