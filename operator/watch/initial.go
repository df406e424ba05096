package watch

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// initialList passes on the objects of the first list of a type while they are received. The
// reflector would collect them all before it delivers the first, which needs more memory than
// the graph itself.
//
// That is only done in the first attempt, for a type of which nothing is known: a later list may
// come from a storage that was restored, and its objects may only be passed on once its
// resourceVersion is known (see graph.Listing).
type initialList struct {
	possible bool                  // nothing was passed on yet
	listed   map[graph.ID]struct{} // the objects of a complete list; nil if there is none
}

// receive passes on the objects of a streamed list until it is complete, fails or ctx ends. It
// returns the rest of the watch, which begins with the event that ended the list. Other events,
// such as bookmarks, mean nothing before that.
func (s *store) receive(ctx context.Context, w apiwatch.Interface) apiwatch.Interface {
	if !s.initial.possible {
		return w
	}
	s.initial.possible = false
	s.sink.Apply(graph.Listing{Kind: s.kind.GroupKind(), Streamed: true, Incomparable: s.incomparable()})
	listed := map[graph.ID]struct{}{}
	for {
		select {
		case <-ctx.Done():
			return w
		case e, open := <-w.ResultChan():
			if !open {
				return w
			}
			switch {
			case e.Type == apiwatch.Added || e.Type == apiwatch.Modified || e.Type == apiwatch.Deleted:
				s.receiveObject(e, listed)
			case isEndOfList(e):
				s.initial.listed = listed
				return newResumedWatch(e, w)
			case e.Type == apiwatch.Error:
				return newResumedWatch(e, w)
			}
		}
	}
}

// receiveObject passes on an object of a streamed list, or its deletion.
func (s *store) receiveObject(e apiwatch.Event, listed map[graph.ID]struct{}) {
	s.monitor.stream.progressed()
	o, ok := s.object(e.Object)
	switch {
	case !ok:
	case e.Type == apiwatch.Deleted:
		delete(listed, graph.IDOf(o.UID))
		s.sink.Apply(graph.Deleted{Object: o, At: time.Now()})
	default:
		listed[graph.IDOf(o.UID)] = struct{}{}
		s.sink.Apply(seen(o, e.Object))
	}
}

// isEndOfList reports whether an event completes a streamed list.
func isEndOfList(e apiwatch.Event) bool {
	o, ok := e.Object.(*metav1.PartialObjectMetadata)
	return ok && e.Type == apiwatch.Bookmark && o.Annotations[metav1.InitialEventsAnnotationKey] == "true"
}

// resumedWatch is a watch of which an event was received that is delivered first. Its channel
// must be requested for each event, as the reflector does.
type resumedWatch struct {
	apiwatch.Interface
	first chan apiwatch.Event // capacity 1
}

func newResumedWatch(first apiwatch.Event, rest apiwatch.Interface) *resumedWatch {
	w := &resumedWatch{Interface: rest, first: make(chan apiwatch.Event, 1)}
	w.first <- first
	return w
}

// ResultChan implements watch.Interface.
func (w *resumedWatch) ResultChan() <-chan apiwatch.Event {
	if len(w.first) != 0 {
		return w.first
	}
	return w.Interface.ResultChan()
}
