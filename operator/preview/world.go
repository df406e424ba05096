package preview

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

// world is a copy of a cluster's metadata, and does what the API server does to it
// when objects are deleted and patched.
type world struct {
	survey  *survey.Survey
	now     func() time.Time
	version uint64 // of the last change, above those of all objects

	objects map[graph.ID]*object
	places  map[place]map[string]*object
	twins   map[named]*object // by the names of other types that they are shown under, too
	ended   map[graph.ID]*object
	names   map[named]struct{} // of what has ended
	news    []graph.Event      // that the collector has not been told yet
}

// place is a resource in one namespace.
type place struct {
	schema.GroupResource
	namespace string
}

// named is a name in a place.
type named struct {
	place
	name string
}

type object struct {
	*metav1.PartialObjectMetadata
	id       graph.ID
	resource catalog.Resource
	changed  bool // its metadata is a copy by now

	// contents says of a namespace that its contents have to go before it does.
	contents bool
}

// names of types that the API server, or a controller of Kubernetes, empties.
var (
	namespaces  = schema.GroupKind{Kind: "Namespace"}
	definitions = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	pods        = schema.GroupKind{Kind: "Pod"}
	claims      = schema.GroupKind{Kind: "PersistentVolumeClaim"}
)

func newWorld(s *survey.Survey, now func() time.Time) *world {
	w := &world{survey: s, now: now, objects: map[graph.ID]*object{}, places: map[place]map[string]*object{}, twins: map[named]*object{}, ended: map[graph.ID]*object{}, names: map[named]struct{}{}}
	for id, item := range s.Items {
		o := &object{PartialObjectMetadata: item.Meta, id: id, resource: item.Resource}
		o.contents = o.resource.GroupKind() == namespaces
		w.objects[id] = o
		at := o.place()
		if w.places[at] == nil {
			w.places[at] = map[string]*object{}
		}
		w.places[at][o.Name] = o
		for _, r := range s.Twins[id] {
			w.twins[named{place{r.Version.GroupResource(), o.Namespace}, o.Name}] = o
		}
		if n, err := strconv.ParseUint(o.ResourceVersion, 10, 64); err == nil {
			w.version = max(w.version, n)
		}
	}
	return w
}

func (o *object) place() place { return place{o.resource.Version.GroupResource(), o.Namespace} }

// String is the object as kubectl would name it.
func (o *object) String() string { return o.resource.Kind + "/" + o.Name }

// find returns the object of a name.
func (w *world) find(resource schema.GroupVersionResource, namespace, name string) (*object, bool) {
	o, ok := w.places[place{resource.GroupResource(), namespace}][name]
	return o, ok
}

// shown returns the object of a name, be it by another type that it is shown under, too.
func (w *world) shown(resource schema.GroupVersionResource, namespace, name string) (*object, bool) {
	if o, ok := w.find(resource, namespace, name); ok {
		return o, true
	}
	if o, ok := w.twins[named{place{resource.GroupResource(), namespace}, name}]; ok {
		return w.find(o.resource.Version, o.Namespace, o.Name)
	}
	return nil, false
}

// in returns the objects of a resource, in a namespace or in all of them.
func (w *world) in(gr schema.GroupResource, namespace string) []*object {
	found := slices.Collect(maps.Values(w.places[place{gr, namespace}]))
	for at, objects := range w.places {
		if at.GroupResource == gr && namespace == "" && at.namespace != "" {
			found = slices.AppendSeq(found, maps.Values(objects))
		}
	}
	slices.SortFunc(found, compare)
	return found
}

// writable returns the metadata to be changed, which is the survey's no longer.
func (o *object) writable() *metav1.PartialObjectMetadata {
	if !o.changed {
		o.PartialObjectMetadata, o.changed = o.DeepCopy(), true
	}
	return o.PartialObjectMetadata
}

// touched gives an object its next version, and lets it go if nothing holds it any
// more.
func (w *world) touched(o *object) {
	w.version++
	o.writable().ResourceVersion = strconv.FormatUint(w.version, 10)
	if o.DeletionTimestamp != nil && len(o.Finalizers) == 0 && !o.contents {
		delete(w.objects, o.id)
		delete(w.places[o.place()], o.Name)
		w.ended[o.id], w.names[named{o.place(), o.Name}] = o, struct{}{}
		w.news = append(w.news, graph.Deleted{Object: w.seen(o), At: w.now()})
		return
	}
	w.news = append(w.news, graph.Seen{Object: w.seen(o)})
}

func (w *world) seen(o *object) graph.Object {
	return graph.ObjectOf(o.resource.GroupVersionKind(), o.PartialObjectMetadata)
}

// told returns what has happened since it was called last.
func (w *world) told() []graph.Event {
	news := w.news
	w.news = nil
	return news
}

// delete is what DELETE comes to. Types have defaults of
// their own only for clients that say nothing of dependents, which kubectl does not.
func (w *world) delete(o *object, options metav1.DeleteOptions) error {
	if p := options.Preconditions; p != nil {
		if p.UID != nil && *p.UID != o.UID || p.ResourceVersion != nil && *p.ResourceVersion != o.ResourceVersion {
			return o.conflict()
		}
	}
	m := o.writable()
	if policy := options.PropagationPolicy; policy != nil {
		m.Finalizers = slices.DeleteFunc(m.Finalizers, ofCollection)
		switch *policy {
		case metav1.DeletePropagationForeground:
			m.Finalizers = append(m.Finalizers, metav1.FinalizerDeleteDependents)
		case metav1.DeletePropagationOrphan:
			m.Finalizers = append(m.Finalizers, metav1.FinalizerOrphanDependents)
		case metav1.DeletePropagationBackground: // neither
		}
	}
	if m.DeletionTimestamp == nil {
		m.DeletionTimestamp = &metav1.Time{Time: w.now()}
		if o.resource.GroupKind() == definitions && !slices.Contains(m.Finalizers, cleansUpInstances) {
			m.Finalizers = append(m.Finalizers, cleansUpInstances) // as the API server does
		}
	}
	w.touched(o)
	return nil
}

// ofCollection reports whether a finalizer is one of garbage collection.
func ofCollection(finalizer string) bool {
	return finalizer == metav1.FinalizerDeleteDependents || finalizer == metav1.FinalizerOrphanDependents
}

func (o *object) conflict() error {
	return apierrors.NewConflict(o.resource.Version.GroupResource(), o.Name, fmt.Errorf("the object has been modified"))
}

// patch is what a merge patch comes to, as the collector makes them: lists are
// replaced, or taken off by null.
func (w *world) patch(o *object, body []byte) error {
	var p struct {
		Metadata map[string]json.RawMessage `json:"metadata"`
	}
	var uid types.UID
	var version string
	var annotations map[string]*string
	refs, finalizers := o.OwnerReferences, o.Finalizers
	err := json.Unmarshal(body, &p)
	for name, to := range map[string]any{
		"uid": &uid, "resourceVersion": &version, "annotations": &annotations, "ownerReferences": &refs, "finalizers": &finalizers,
	} {
		if value, has := p.Metadata[name]; has && err == nil {
			err = into(value, to)
		}
	}
	switch {
	case err != nil:
		return apierrors.NewBadRequest(err.Error())
	case uid != "" && uid != o.UID, version != "" && version != o.ResourceVersion:
		return o.conflict()
	}
	m := o.writable()
	m.OwnerReferences, m.Finalizers = refs, finalizers
	for name, value := range annotations {
		if value == nil {
			delete(m.Annotations, name)
			continue
		}
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, name, *value)
	}
	w.touched(o)
	return nil
}

// into reads a value into something new: a slice that is there already would be
// written into, and it is somebody else's.
func into(value json.RawMessage, to any) error {
	switch to := to.(type) {
	case *[]metav1.OwnerReference:
		*to = nil
	case *[]string:
		*to = nil
	}
	return json.Unmarshal(value, to)
}
