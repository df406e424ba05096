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
	listsAtOnce = 8
	page        = 500

	ours = "gleaner.dev/" // how the annotations begin that are kept
)

// Options say what is read.
type Options struct {
	Config *rest.Config

	// Namespace is the only one whose objects are read, and then nothing that is in
	// none; "" for everything.
	Namespace string

	// Fallback is the namespace to read of a type that may not be read everywhere.
	Fallback string

	// Listed is told how many types of how many have been read; may be nil.
	Listed func(done, of int)

	Now func() time.Time
}

// Live reads a cluster.
func Live(ctx context.Context, o Options) (*Survey, error) {
	s := &Survey{Graph: graph.New(), Items: map[graph.ID]Item{}, Twins: map[graph.ID][]catalog.Resource{}}
	o.Config = rest.CopyConfig(o.Config)
	o.Config.WarningHandler = rest.NoWarnings{} // nobody asked for types that are deprecated: all are listed
	discoverer, err := discovery.NewDiscoveryClientForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("make client for discovery: %w", err)
	}
	services, err := aggregator.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("make client for API services: %w", err)
	}
	if s.Client, err = metadata.NewForConfig(metadata.ConfigFor(o.Config)); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	asker := watch.New(watch.Options{Discovery: discoverer, Metadata: s.Client, APIServices: readable(services)}) // which is never run
	s.Served, s.Absent, s.Empty = asker.Serves, asker.Absent, asker.Empty
	if err := s.discover(ctx, discoverer, services); err != nil {
		return nil, err
	}
	if err := s.list(ctx, o); err != nil {
		return nil, err
	}
	s.wire(o.Now)
	return s, nil
}

// discover finds out what types there are.
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
		known = watch.Services{} // then each absence is asked for, which costs time alone
	}
	s.Types = catalog.Build(groups, lists, catalog.Settings{Ignored: catalog.DefaultIgnored(), Local: known.Local, Failed: failed})
	return ctx.Err()
}

// readable reads API services for somebody who may not be allowed to: discovery's word
// counts alone then.
func readable(services aggregator.Interface) func(context.Context) (watch.Services, error) {
	read := watch.ReadServices(services)
	return func(ctx context.Context) (watch.Services, error) {
		s, err := read(ctx)
		if apierrors.IsForbidden(err) {
			return watch.Services{}, nil
		}
		return s, err
	}
}

// list lists all types that there are, some at a time.
func (s *Survey) list(ctx context.Context, o Options) error {
	types := s.Types.Collected()
	if o.Namespace != "" {
		types = slices.DeleteFunc(types, func(r catalog.Resource) bool { return !r.Namespaced })
	}
	var mu sync.Mutex // covers s and done
	done := 0
	lists, ctx := errgroup.WithContext(ctx)
	lists.SetLimit(listsAtOnce)
	for _, r := range types {
		lists.Go(func() error {
			items, unread := s.listOne(ctx, o, r)
			mu.Lock()
			defer mu.Unlock()
			done++
			if o.Listed != nil {
				o.Listed(done, len(types))
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
	items, err := s.listIn(ctx, r, o.Namespace)
	unread := &Unread{Resource: r.Version.GroupResource(), Err: err}
	switch {
	case err == nil:
		return items, nil
	case apierrors.IsForbidden(err) && r.Namespaced && o.Namespace == "" && o.Fallback != "":
		narrow, again := s.listIn(ctx, r, o.Fallback)
		if again == nil {
			items, unread.Only = narrow, o.Fallback
		}
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		if served, asked := s.Served(ctx, r.Version); asked == nil && !served {
			return nil, nil // it went meanwhile
		}
	}
	return items, unread
}

// listIn lists one type, page by page. After an error, what came before it is
// there.
func (s *Survey) listIn(ctx context.Context, r catalog.Resource, namespace string) ([]Item, error) {
	client := s.Client.Resource(r.Version).Namespace(namespace)
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) })
	pages.PageSize = page
	var items []Item
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		m, ok := o.(*metav1.PartialObjectMetadata)
		if !ok {
			return errors.New("the answer is no list of metadata")
		}
		items = append(items, Item{Resource: r, Meta: lean(m)})
		return nil
	})
	return items, err
}

// lean is a copy of metadata without what nobody asks for: a hundred thousand
// objects have to fit.
func lean(m *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	c := *m
	c.ManagedFields, c.Annotations = nil, nil
	for name, value := range m.Annotations {
		if strings.HasPrefix(name, ours) {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, name, value)
		}
	}
	return &c
}
