package watch

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/selectors"
)

// batchSize is the number of objects of a list that are passed on at a time, so that a long
// list does not delay the events of other types.
const batchSize = 500

// store receives the objects of one type from a reflector, and passes them on as events.
// It stores nothing.
type store struct {
	sink             Sink
	kind             schema.GroupVersionKind
	monitor          *monitor
	selectors        func() *selectors.Index // nil: there are none
	triggerDiscovery func()                  // triggers discovery; nil for a type that does not define types
	initial          initialList
}

var (
	_ cache.TransformingStore      = (*store)(nil)
	_ cache.ReflectorBookmarkStore = (*store)(nil)
)

// Add passes on an object that was created, or is new to the watch.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update passes on an object that changed.
func (s *store) Update(obj any) error {
	s.monitor.connected()
	if o, ok := s.object(obj); ok {
		s.sink.Apply(seen(o, obj))
		s.notify()
	}
	return nil
}

// seen returns the event of an object that a watch delivered.
func seen(o graph.Object, obj any) graph.Seen {
	e := graph.Seen{Object: o}
	if o.Terminating && (o.OtherFinalizers || o.Held && o.HasState) {
		e.Metadata, _ = obj.(*metav1.PartialObjectMetadata)
	}
	return e
}

// Delete passes on the deletion of an object. Anything but the object itself is a guess
// of the reflector (DeletedFinalStateUnknown), which proves nothing. It comes from a list,
// which is passed on as well.
func (s *store) Delete(obj any) error {
	s.monitor.connected()
	if o, ok := s.metadata(obj); ok {
		s.sink.Apply(graph.Deleted{Object: o, At: time.Now()})
		s.notify()
	}
	return nil
}

// Replace passes on a full list, or completes one that was passed on as it was received.
func (s *store) Replace(list []any, resourceVersion string) error {
	streamed := s.monitor.stream.end()
	if listed := s.initial.listed; listed != nil {
		s.initial.listed = nil
		s.sink.Apply(graph.Relisted{Kind: s.kind.GroupKind(), ResourceVersion: resourceVersion, Listed: listed})
	} else {
		s.replace(list, resourceVersion)
	}
	if streamed {
		s.monitor.connected() // the stream continues as the watch
	}
	s.monitor.synced()
	s.notify()
	return nil
}

// replace passes on a full list.
func (s *store) replace(list []any, resourceVersion string) {
	s.initial.possible = false
	s.sink.Apply(graph.Listing{Kind: s.kind.GroupKind(), ResourceVersion: resourceVersion, Incomparable: s.incomparable()})
	ids := make(map[graph.ID]struct{}, len(list))
	events := make([]graph.Event, 0, min(len(list), batchSize))
	for _, item := range list {
		o, ok := s.object(item)
		if !ok {
			continue
		}
		ids[graph.IDOf(o.UID)] = struct{}{}
		if events = append(events, graph.Seen{Object: o}); len(events) == batchSize {
			s.sink.Apply(events...)
			events = make([]graph.Event, 0, batchSize)
		}
	}
	events = append(events, graph.Relisted{Kind: s.kind.GroupKind(), ResourceVersion: resourceVersion, Listed: ids})
	s.sink.Apply(events...)
}

// incomparable reports whether the resourceVersions of the type cannot be compared.
func (s *store) incomparable() bool { return !s.monitor.state().Resource.Local }

// Bookmark records that the watch works.
func (s *store) Bookmark(string) error {
	s.monitor.connected()
	return nil
}

// Resync does nothing, since nothing is stored.
func (s *store) Resync() error { return nil }

// Transformer returns the transformation of each object after decoding. The reflector
// collects all objects of a list before it delivers them.
func (s *store) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		s.monitor.stream.progressed()
		if o, ok := s.object(obj); ok {
			return &pendingObject{ObjectMeta: emptyMeta, object: o}, nil
		}
		return obj, nil
	}
}

// pendingObject is the part of an object that is kept until the list is complete. It implements
// the methods of metav1.Object that the reflector uses.
type pendingObject struct {
	*metav1.ObjectMeta // empty, for the other methods
	object             graph.Object
}

var emptyMeta = &metav1.ObjectMeta{}

// GetNamespace implements metav1.Object.
func (g *pendingObject) GetNamespace() string { return g.object.Namespace }

// GetName implements metav1.Object.
func (g *pendingObject) GetName() string { return g.object.Name }

// GetUID implements metav1.Object.
func (g *pendingObject) GetUID() types.UID { return g.object.UID }

// GetResourceVersion implements metav1.Object.
func (g *pendingObject) GetResourceVersion() string { return g.object.ResourceVersion }

// object converts an object from the reflector to a graph object, with its Selection. It returns
// false if there is no UID.
func (s *store) object(obj any) (graph.Object, bool) {
	o, ok := s.metadata(obj)
	if meta, is := obj.(*metav1.PartialObjectMetadata); is && ok && s.selectors != nil {
		scope := s.selectors().Scope(s.monitor.resource.Version.GroupResource(), o.Namespace)
		o.Selection = scope.Evaluate(meta.GetLabels())
	}
	return o, ok
}

// metadata is object without the Selection, if that is not known yet.
func (s *store) metadata(obj any) (graph.Object, bool) {
	if g, ok := obj.(*pendingObject); ok {
		return g.object, true
	}
	meta, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok || meta.UID == "" {
		return graph.Object{}, false
	}
	return graph.ObjectOf(s.kind, meta), true
}

// pruned drops what is not used of listed objects, since the reflector keeps all pages of an
// ordinary list until the last has been read. It returns the list.
func pruned(list *metav1.PartialObjectMetadataList) *metav1.PartialObjectMetadataList {
	for i := range list.Items {
		o := &list.Items[i]
		o.ManagedFields = nil
		value, has := o.Annotations[objectstate.Annotation]
		if o.Annotations = nil; has {
			o.Annotations = map[string]string{objectstate.Annotation: value}
		}
	}
	return list
}

func (s *store) notify() {
	if s.triggerDiscovery != nil {
		s.triggerDiscovery()
	}
}

// definesTypes reports whether the objects of a resource define types.
func definesTypes(resource schema.GroupResource) bool {
	switch resource {
	case schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
		schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}:
		return true
	}
	return false
}
