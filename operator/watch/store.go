package watch

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// chunk is how many objects of a list are handed on at a time, so that one
// long list doesn't keep the others' events waiting.
const chunk = 500

// store takes in what the reflector of one type delivers, and hands it on as
// events. It keeps nothing.
type store struct {
	sink    Sink
	kind    schema.GroupVersionKind
	monitor *monitor
	poke    func() // nil for a type that says nothing of types
}

var (
	_ cache.TransformingStore      = (*store)(nil)
	_ cache.ReflectorBookmarkStore = (*store)(nil)
)

// Add hands on an object that was created, or is new to the watch.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update hands on an object that changed.
func (s *store) Update(obj any) error {
	s.monitor.connected()
	if o, ok := s.object(obj); ok {
		s.sink.Apply(graph.Seen{Object: o})
		s.tell()
	}
	return nil
}

// Delete hands on that an object was deleted. What is not the object itself is
// the reflector's guess: that proves nothing, and the list that must have led
// to it says the same without claiming to know.
func (s *store) Delete(obj any) error {
	s.monitor.connected()
	if o, ok := s.object(obj); ok {
		s.sink.Apply(graph.Deleted{Object: o, At: time.Now()})
		s.tell()
	}
	return nil
}

// Replace hands on a full list.
func (s *store) Replace(list []any, resourceVersion string) error {
	streamed := s.monitor.stream.over()
	s.sink.Apply(graph.Listing{
		Kind: s.kind.GroupKind(), ResourceVersion: resourceVersion, Incomparable: !s.monitor.state().Resource.Local,
	})
	ids := make(map[graph.ID]struct{}, len(list))
	events := make([]graph.Event, 0, min(len(list), chunk))
	for _, item := range list {
		o, ok := s.object(item)
		if !ok {
			continue
		}
		ids[graph.IDOf(o.UID)] = struct{}{}
		if events = append(events, graph.Seen{Object: o}); len(events) == chunk {
			s.sink.Apply(events...)
			events = make([]graph.Event, 0, chunk)
		}
	}
	events = append(events, graph.Relisted{Kind: s.kind.GroupKind(), ResourceVersion: resourceVersion, Listed: ids})
	s.sink.Apply(events...)
	if streamed {
		s.monitor.connected() // the stream goes on as the watch
	}
	s.monitor.synced()
	s.tell()
	return nil
}

// Bookmark notes that the watch is alive.
func (s *store) Bookmark(string) error {
	s.monitor.connected()
	return nil
}

// Resync does nothing: there is nothing to deliver again.
func (s *store) Resync() error { return nil }

// Transformer returns what is done to each object as soon as it is decoded,
// where the reflector gathers a whole type before it is delivered.
func (s *store) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		s.monitor.stream.progressed()
		if o, ok := s.object(obj); ok {
			return &gathered{ObjectMeta: nothing, object: o}, nil
		}
		return obj, nil
	}
}

// gathered is all that is kept of an object while a whole type is gathered. Of
// an object's metadata the reflector asks for what follows.
type gathered struct {
	*metav1.ObjectMeta // nothing, for what it may come to ask for
	object             graph.Object
}

var nothing = &metav1.ObjectMeta{}

// GetNamespace implements metav1.Object.
func (g *gathered) GetNamespace() string { return g.object.Namespace }

// GetName implements metav1.Object.
func (g *gathered) GetName() string { return g.object.Name }

// GetUID implements metav1.Object.
func (g *gathered) GetUID() types.UID { return g.object.UID }

// GetResourceVersion implements metav1.Object.
func (g *gathered) GetResourceVersion() string { return g.object.ResourceVersion }

// object makes a graph object of what the reflector delivers. Without a UID it
// is none.
func (s *store) object(obj any) (graph.Object, bool) {
	if g, ok := obj.(*gathered); ok {
		return g.object, true
	}
	meta, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok || meta.UID == "" {
		return graph.Object{}, false
	}
	return graph.ObjectOf(s.kind, meta), true
}

func (s *store) tell() {
	if s.poke != nil {
		s.poke()
	}
}

// tellsOfTypes reports whether objects of a resource are what types come from.
func tellsOfTypes(resource schema.GroupResource) bool {
	switch resource {
	case schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
		schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}:
		return true
	}
	return false
}
