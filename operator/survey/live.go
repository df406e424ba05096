package survey

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/watch"
)

const (
	listConcurrency = 8
	pageSize        = 500

	annotationPrefix = "gleaner.dev/" // prefix of the annotations that are kept
)

// Options configure what is read.
type Options struct {
	Config *rest.Config

	// Namespace limits the survey to the objects of one namespace, without
	// cluster-scoped objects. "" reads everything.
	Namespace string

	// Fallback is the namespace to list for types that may not be listed in all namespaces.
	Fallback string

	// Progress is called with the number of types that have been listed, and the total. May
	// be nil.
	Progress func(done, of int)

	Now func() time.Time
}

// Live reads a cluster.
func Live(ctx context.Context, o Options) (*Survey, error) {
	s, err := Discover(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := s.list(ctx, o); err != nil {
		return nil, err
	}
	s.initGatherer(o.Now)
	return s, nil
}

// Discover reads the types of a cluster, and no objects.
func Discover(ctx context.Context, o Options) (*Survey, error) {
	s := &Survey{Graph: graph.New(), Items: map[graph.ID]Item{}, EquivalentResources: map[graph.ID][]catalog.Resource{}}
	o.Config = rest.CopyConfig(o.Config)
	o.Config.WarningHandler = rest.NoWarnings{} // all types are listed, including deprecated ones
	discoverer, err := discovery.NewDiscoveryClientForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("create discovery client: %w", err)
	}
	services, err := aggregator.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("create client for API services: %w", err)
	}
	if s.Client, err = metadata.NewForConfig(metadata.ConfigFor(o.Config)); err != nil {
		return nil, fmt.Errorf("create metadata client: %w", err)
	}
	watcher := watch.New(watch.Options{Discovery: discoverer, Metadata: s.Client, APIServices: readServicesIfAllowed(services)}) // never run
	s.Serves, s.Absent, s.VerifyEmpty = watcher.Serves, watcher.Absent, watcher.VerifyEmpty
	return s, s.discover(ctx, discoverer, services)
}

// discover reads the types from discovery.
func (s *Survey) discover(ctx context.Context, d discovery.DiscoveryInterfaceWithContext, services aggregator.Interface) error {
	groups, lists, err := discovery.ServerGroupsAndResourcesWithContext(ctx, d)
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && (!partial || len(lists) == 0) {
		return fmt.Errorf("discover types: %w", err)
	}
	for _, gv := range slices.SortedFunc(maps.Keys(failed), func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) }) {
		s.Unread = append(s.Unread, Unread{Resource: schema.GroupResource{Group: gv.Group, Resource: "*"}, Err: failed[gv]})
	}
	known, err := watch.ReadServices(services)(ctx)
	if err != nil {
		known = watch.Services{} // then each absence is verified, which only takes more time
	}
	s.Types = catalog.Build(groups, lists, catalog.Settings{Ignored: catalog.DefaultIgnored(), Local: known.Local, Failed: failed})
	return ctx.Err()
}

// readServicesIfAllowed returns a function that reads API services, or returns none if that is
// forbidden: then only discovery counts.
func readServicesIfAllowed(services aggregator.Interface) func(context.Context) (watch.Services, error) {
	read := watch.ReadServices(services)
	return func(ctx context.Context) (watch.Services, error) {
		s, err := read(ctx)
		if apierrors.IsForbidden(err) {
			return watch.Services{}, nil
		}
		return s, err
	}
}

// list lists all types, several at a time.
func (s *Survey) list(ctx context.Context, o Options) error {
	types := s.Types.Collected()
	if o.Namespace != "" {
		types = slices.DeleteFunc(types, func(r catalog.Resource) bool { return !r.Namespaced })
	}
	var mu sync.Mutex // covers s and done
	done := 0
	lists, ctx := errgroup.WithContext(ctx)
	lists.SetLimit(listConcurrency)
	for _, r := range types {
		lists.Go(func() error {
			items, unread := s.listOne(ctx, o, r)
			mu.Lock()
			defer mu.Unlock()
			done++
			if o.Progress != nil {
				o.Progress(done, len(types))
			}
			if unread != nil {
				s.Unread = append(s.Unread, *unread)
			}
			s.add(r, items)
			return ctx.Err()
		})
	}
	err := lists.Wait()
	slices.SortFunc(s.Unread, func(a, b Unread) int { return strings.Compare(a.Resource.String(), b.Resource.String()) })
	return err
}

func (s *Survey) listOne(ctx context.Context, o Options, r catalog.Resource) ([]Item, *Unread) {
	items, err := s.listNamespace(ctx, r, o.Namespace)
	unread := &Unread{Resource: r.Version.GroupResource(), Err: err}
	switch {
	case err == nil:
		return items, nil
	case apierrors.IsForbidden(err) && r.Namespaced && o.Namespace == "" && o.Fallback != "":
		fallbackItems, fallbackErr := s.listNamespace(ctx, r, o.Fallback)
		if fallbackErr == nil {
			items, unread.OnlyNamespace = fallbackItems, o.Fallback
		}
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		if served, servesErr := s.Serves(ctx, r.Version); servesErr == nil && !served {
			return nil, nil // the type was removed meanwhile
		}
	}
	return items, unread
}

// listNamespace lists one type, page by page. After an error it returns the items read so far.
func (s *Survey) listNamespace(ctx context.Context, r catalog.Resource, namespace string) ([]Item, error) {
	client := s.Client.Resource(r.Version).Namespace(namespace)
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) })
	pages.PageSize = pageSize
	var items []Item
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		m, ok := o.(*metav1.PartialObjectMetadata)
		if !ok {
			return errors.New("response is not a list of metadata")
		}
		items = append(items, Item{Resource: r, Meta: stripMetadata(m)})
		return nil
	})
	return items, err
}

// stripMetadata returns a copy of metadata without unused fields: there may be hundreds of
// thousands of objects.
func stripMetadata(m *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	c := *m
	c.ManagedFields, c.Annotations = nil, nil
	for name, value := range m.Annotations {
		if strings.HasPrefix(name, annotationPrefix) {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, name, value)
		}
	}
	return &c
}
