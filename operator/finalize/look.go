package finalize

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

const (
	// lookAgain is when a look that failed is tried again.
	lookAgain = 5 * time.Second

	// lookRemoved is how often the objects of a finalizer are counted whose resource
	// waits for them to be gone.
	lookRemoved = 3 * time.Second
)

// look has all objects of the finalizer's resources looked at, soon.
func (s *server) look() {
	select {
	case s.looks <- struct{}{}:
	default:
	}
}

// keepLooking looks at all objects whenever somebody asks for it.
func (s *server) keepLooking(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.looks:
		}
		again := time.Duration(0)
		if err := s.lookAtAll(ctx); err != nil && ctx.Err() == nil {
			s.Log.Error(err, "Could not look for the objects of a finalizer", "finalizer", s.finalizer().String())
			again = lookAgain
		} else if s.finalizer().Removed {
			again = lookRemoved
		}
		if again > 0 {
			time.AfterFunc(again, s.look)
		}
	}
}

// lookAtAll lists the resources that the finalizer is for, and has each object
// visited about which there is something to be done.
func (s *server) lookAtAll(ctx context.Context) error {
	f := s.finalizer()
	carriers := 0
	for _, t := range s.Catalog().Collected() {
		if !f.Selects(t.Version.GroupResource()) || f.Namespace != "" && !t.Namespaced {
			continue
		}
		n, err := s.lookAt(ctx, f, t)
		if err != nil {
			return err
		}
		carriers += n
	}
	s.mu.Lock()
	changed := s.carriers != carriers || s.counted != f.Removed
	s.carriers, s.counted = carriers, f.Removed
	s.mu.Unlock()
	if changed {
		s.Changed()
	}
	return nil
}

// lookAt counts the objects of a resource that have the finalizer.
func (s *server) lookAt(ctx context.Context, f served, t catalog.Resource) (carriers int, err error) {
	client := s.Client.Resource(t.Version).Namespace(f.Namespace)
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) })
	err = list.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		meta, ok := item.(*metav1.PartialObjectMetadata)
		if !ok {
			return fmt.Errorf("listed a %T", item)
		}
		o := graph.ObjectOf(t.GroupVersionKind(), meta)
		carries := slices.Contains(o.Finalizers, s.entry)
		if carries {
			carriers++
		}
		switch {
		case o.Terminating && carries:
			s.await(keyOf(o))
		case !o.Terminating && f.wants(carries):
			s.add(keyOf(o))
		}
		return nil
	})
	if err != nil { // a type that has gone will be out of the catalog
		return carriers, fmt.Errorf("list %s: %w", t.Version.GroupResource(), err)
	}
	return carriers, nil
}
