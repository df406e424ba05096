package cascade

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/gleaner-dev/gleaner/operator/cascade"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

const (
	maxNamespaces = 5 // from more, all are watched
	retryAfter    = time.Second
)

// feed watches a cluster for a tracker.
type feed struct {
	mu      sync.Mutex // covers what follows
	tracker *cascade.Tracker
	failed  map[place]error // the last error of a list or watch; removed when it works again
	changed bool            // since last was taken
	last    cascade.Status
}

// place is what one watch covers.
type place struct {
	catalog.Resource
	namespace string // "": all
}

// newFeed returns a feed of the objects of cascades. It watches nothing before run.
func newFeed(tracker *cascade.Tracker) *feed {
	return &feed{tracker: tracker, failed: map[place]error{}, changed: true}
}

// places returns what to watch, to see what becomes of the objects of the cascades.
func places(s *survey.Survey, tracker *cascade.Tracker) []place {
	namespaces := map[catalog.Resource][]string{}
	for o := range tracker.Members {
		item, ok := s.Items[graph.IDOf(o.UID)]
		if !ok {
			continue // gone before
		}
		if known := namespaces[item.Resource]; !slices.Contains(known, o.Namespace) && len(known) <= maxNamespaces {
			namespaces[item.Resource] = append(known, o.Namespace)
		}
	}
	var all []place
	for resource, in := range namespaces {
		if len(in) > maxNamespaces {
			in = []string{metav1.NamespaceAll}
		}
		for _, namespace := range in {
			all = append(all, place{resource, namespace})
		}
	}
	return all
}

// run watches until the context ends.
func (f *feed) run(ctx context.Context, client metadata.Interface, places []place) {
	// Errors are part of what is shown.
	ctx = klog.NewContext(ctx, logr.Discard())
	var watches sync.WaitGroup
	for _, p := range places {
		watches.Go(func() {
			reflector := cache.NewReflectorWithOptions(f.listerWatcher(client, p), &metav1.PartialObjectMetadata{}, &store{feed: f, place: p},
				cache.ReflectorOptions{Name: p.Version.Resource})
			for ctx.Err() == nil {
				if err := reflector.ListAndWatchWithContext(ctx); err != nil && ctx.Err() == nil {
					f.fail(p, err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(retryAfter):
				}
			}
		})
	}
	watches.Wait()
}

func (f *feed) listerWatcher(client metadata.Interface, p place) cache.ListerWatcher {
	at := client.Resource(p.Version).Namespace(p.namespace)
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.ResourceVersion == "0" {
				o.ResourceVersion = "" // a list from a cache may be older than the survey, and lack what is in that
			}
			return at.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return at.Watch(ctx, o) },
	}, client)
}

// fail records that objects of a place can't be read, until something of it is received again.
func (f *feed) fail(p place, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed[p] = err
}

// seen records that objects exist.
func (f *feed) seen(objects []graph.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tracker.SeenAll(objects)
	f.changed = true
}

// places returns what to watch now.
func (f *feed) places(s *survey.Survey) []place {
	f.mu.Lock()
	defer f.mu.Unlock()
	return places(s, f.tracker)
}

// status returns how far the cascades are, and what can't be read.
func (f *feed) status() (s cascade.Status, unread []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed {
		f.last, f.changed = f.tracker.Status(), false
	}
	for p, err := range f.failed {
		unread = append(unread, fmt.Sprintf("%s: %v", p.Version.GroupResource(), err))
	}
	slices.Sort(unread)
	return f.last, unread
}

// store is where a reflector writes what it sees.
type store struct {
	*feed
	place place
}

// Add implements cache.ReflectorStore.
func (s *store) Add(o any) error {
	return s.each([]any{o}, func(m *metav1.PartialObjectMetadata) { s.tracker.Seen(s.object(m)) })
}

// Update implements cache.ReflectorStore.
func (s *store) Update(o any) error { return s.Add(o) }

// Delete implements cache.ReflectorStore.
func (s *store) Delete(o any) error {
	return s.each([]any{o}, func(m *metav1.PartialObjectMetadata) { s.tracker.Gone(m.UID) })
}

// Replace implements cache.ReflectorStore.
func (s *store) Replace(objects []any, _ string) error {
	exist := make(map[types.UID]struct{}, len(objects))
	err := s.each(objects, func(m *metav1.PartialObjectMetadata) {
		exist[m.UID] = struct{}{}
		s.tracker.Seen(s.object(m))
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tracker.Listed(s.place.GroupKind(), s.place.namespace, exist)
	s.changed = true
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *store) Resync() error { return nil }

func (s *store) object(m *metav1.PartialObjectMetadata) graph.Object {
	return graph.ObjectOf(s.place.GroupVersionKind(), m)
}

func (s *store) each(objects []any, do func(*metav1.PartialObjectMetadata)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = true
	delete(s.failed, s.place)
	for _, o := range objects {
		m, ok := o.(*metav1.PartialObjectMetadata)
		if !ok {
			return fmt.Errorf("%s: received a %T", s.place.Version.GroupResource(), o)
		}
		do(m)
	}
	return nil
}
