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

// simulatedCluster simulates a cluster: it has a copy of its metadata, and implements deletes and
// patches as the API server does.
type simulatedCluster struct {
	survey  *survey.Survey
	now     func() time.Time
	version uint64 // resourceVersion of the last change, above those of all objects

	objects       map[graph.ID]*object
	byLocation    map[location]map[string]*object
	equivalents   map[namedLocation]*object // by the other resources under which they are served
	deleted       map[graph.ID]*object
	deletedNames  map[namedLocation]struct{} // of deleted objects
	pendingEvents []graph.Event              // not yet delivered to the collector
}

// location is a resource in one namespace.
type location struct {
	schema.GroupResource
	namespace string
}

// namedLocation is a name in a place.
type namedLocation struct {
	location
	name string
}

type object struct {
	*metav1.PartialObjectMetadata
	id       graph.ID
	resource catalog.Resource
	changed  bool // its metadata is a copy

	// contents is set for a namespace whose contents must be deleted first.
	contents bool
}

// Types with special behavior of the API server or of controllers of Kubernetes.
var (
	namespaces  = schema.GroupKind{Kind: "Namespace"}
	definitions = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	pods        = schema.GroupKind{Kind: "Pod"}
	claims      = schema.GroupKind{Kind: "PersistentVolumeClaim"}
)

func newSimulatedCluster(s *survey.Survey, now func() time.Time) *simulatedCluster {
	w := &simulatedCluster{survey: s, now: now, objects: map[graph.ID]*object{}, byLocation: map[location]map[string]*object{}, equivalents: map[namedLocation]*object{}, deleted: map[graph.ID]*object{}, deletedNames: map[namedLocation]struct{}{}}
	for id, item := range s.Items {
		o := &object{PartialObjectMetadata: item.Meta, id: id, resource: item.Resource}
		o.contents = o.resource.GroupKind() == namespaces
		w.objects[id] = o
		at := o.location()
		if w.byLocation[at] == nil {
			w.byLocation[at] = map[string]*object{}
		}
		w.byLocation[at][o.Name] = o
		for _, r := range s.EquivalentResources[id] {
			w.equivalents[namedLocation{location{r.Version.GroupResource(), o.Namespace}, o.Name}] = o
		}
		if n, err := strconv.ParseUint(o.ResourceVersion, 10, 64); err == nil {
			w.version = max(w.version, n)
		}
	}
	return w
}

func (o *object) location() location {
	return location{o.resource.Version.GroupResource(), o.Namespace}
}

// String returns Kind/name.
func (o *object) String() string { return o.resource.Kind + "/" + o.Name }

// find returns the object with a name.
func (w *simulatedCluster) find(resource schema.GroupVersionResource, namespace, name string) (*object, bool) {
	o, ok := w.byLocation[location{resource.GroupResource(), namespace}][name]
	return o, ok
}

// findEquivalent returns the object with a name, also by another resource under which it is served.
func (w *simulatedCluster) findEquivalent(resource schema.GroupVersionResource, namespace, name string) (*object, bool) {
	if o, ok := w.find(resource, namespace, name); ok {
		return o, true
	}
	if o, ok := w.equivalents[namedLocation{location{resource.GroupResource(), namespace}, name}]; ok {
		return w.find(o.resource.Version, o.Namespace, o.Name)
	}
	return nil, false
}

// list returns the objects of a resource, in a namespace or in all of them.
func (w *simulatedCluster) list(gr schema.GroupResource, namespace string) []*object {
	found := slices.Collect(maps.Values(w.byLocation[location{gr, namespace}]))
	for at, objects := range w.byLocation {
		if at.GroupResource == gr && namespace == "" && at.namespace != "" {
			found = slices.AppendSeq(found, maps.Values(objects))
		}
	}
	slices.SortFunc(found, compare)
	return found
}

// writable returns the metadata for changes, as a copy of the survey's.
func (o *object) writable() *metav1.PartialObjectMetadata {
	if !o.changed {
		o.PartialObjectMetadata, o.changed = o.DeepCopy(), true
	}
	return o.PartialObjectMetadata
}

// updated sets the next resourceVersion of an object, and removes it if it is being deleted
// and has no finalizers.
func (w *simulatedCluster) updated(o *object) {
	w.version++
	o.writable().ResourceVersion = strconv.FormatUint(w.version, 10)
	if o.DeletionTimestamp != nil && len(o.Finalizers) == 0 && !o.contents {
		delete(w.objects, o.id)
		delete(w.byLocation[o.location()], o.Name)
		w.deleted[o.id], w.deletedNames[namedLocation{o.location(), o.Name}] = o, struct{}{}
		w.pendingEvents = append(w.pendingEvents, graph.Deleted{Object: w.graphObject(o), At: w.now()})
		return
	}
	w.pendingEvents = append(w.pendingEvents, graph.Seen{Object: w.graphObject(o)})
}

func (w *simulatedCluster) graphObject(o *object) graph.Object {
	return graph.ObjectOf(o.resource.GroupVersionKind(), o.PartialObjectMetadata)
}

// takeEvents returns the events since its last call.
func (w *simulatedCluster) takeEvents() []graph.Event {
	events := w.pendingEvents
	w.pendingEvents = nil
	return events
}

// delete simulates DELETE.
func (w *simulatedCluster) delete(o *object, options metav1.DeleteOptions) error {
	if p := options.Preconditions; p != nil {
		if p.UID != nil && *p.UID != o.UID || p.ResourceVersion != nil && *p.ResourceVersion != o.ResourceVersion {
			return o.conflict()
		}
	}
	m := o.writable()
	policy := options.PropagationPolicy
	if policy == nil && orphansByDefault(o.resource.GroupKind()) && !slices.ContainsFunc(m.Finalizers, isGCFinalizer) {
		policy = new(metav1.DeletePropagationOrphan)
	}
	if policy != nil {
		m.Finalizers = slices.DeleteFunc(m.Finalizers, isGCFinalizer)
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
		if o.resource.GroupKind() == definitions && !slices.Contains(m.Finalizers, instanceCleanupFinalizer) {
			m.Finalizers = append(m.Finalizers, instanceCleanupFinalizer) // as the API server does
		}
	}
	w.updated(o)
	return nil
}

// orphansByDefault reports whether the dependents of a type are orphaned if a request has no
// propagation policy and the object neither of the finalizers that stand for one: the API server
// does so for types that are older than garbage collection.
func orphansByDefault(gk schema.GroupKind) bool {
	return gk == schema.GroupKind{Group: "batch", Kind: "Job"} || gk == schema.GroupKind{Kind: "ReplicationController"}
}

// isGCFinalizer reports whether a finalizer is a garbage collection finalizer.
func isGCFinalizer(finalizer string) bool {
	return finalizer == metav1.FinalizerDeleteDependents || finalizer == metav1.FinalizerOrphanDependents
}

func (o *object) conflict() error {
	return apierrors.NewConflict(o.resource.Version.GroupResource(), o.Name, fmt.Errorf("the object has been modified"))
}

// patch simulates the merge patches of the collector: lists are replaced, or removed by
// null.
func (w *simulatedCluster) patch(o *object, body []byte) error {
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
			err = unmarshalNew(value, to)
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
	w.updated(o)
	return nil
}

// unmarshalNew unmarshals a value into a new slice, since the existing one is shared.
func unmarshalNew(value json.RawMessage, to any) error {
	switch to := to.(type) {
	case *[]metav1.OwnerReference:
		*to = nil
	case *[]string:
		*to = nil
	}
	return json.Unmarshal(value, to)
}
