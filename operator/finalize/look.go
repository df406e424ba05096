package finalize

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

const (
	// lookAgain and lookAtLast bound the wait after a look that failed.
	lookAgain  = 5 * time.Second
	lookAtLast = 5 * time.Minute

	// lookRemoved and lookRemovedAtLast bound the wait between two counts of the
	// objects of a finalizer whose resource waits for them to be gone.
	lookRemoved       = 3 * time.Second
	lookRemovedAtLast = time.Minute
)

// look has all objects of the finalizer's resources looked at, soon.
func (s *server) look() {
	select {
	case s.looks <- struct{}{}:
	default:
	}
}

// keepLooking looks at all objects whenever somebody asks for it, and again by itself
// after a look that does not suffice.
func (s *server) keepLooking(ctx context.Context) {
	var again <-chan time.Time
	failed, removed := lookAgain, lookRemoved
	for {
		asked := true
		select {
		case <-ctx.Done():
			return
		case <-s.looks:
		case <-again:
			asked = false
		}
		again = nil
		progressed, err := s.lookAtAll(ctx, asked)
		switch {
		case s.over(ctx): // whoever serves next looks anew
		case err != nil:
			s.Log.Error(err, "Could not look for the objects of a finalizer", "finalizer", s.finalizer().String(), "again", failed.String())
			again = time.After(failed)
			failed = min(2*failed, lookAtLast)
		case s.finalizer().Removed:
			if progressed {
				removed = lookRemoved
			}
			again = time.After(removed)
			failed, removed = lookAgain, min(2*removed, lookRemovedAtLast)
		default:
			failed = lookAgain
		}
	}
}

// lookAtAll lists the resources that the finalizer is for, and has the objects visited
// that it did not know of, and those that are not listed: they may be gone. With
// thorough, all that wait are. It reports whether the count is another.
func (s *server) lookAtAll(ctx context.Context, thorough bool) (progressed bool, all error) {
	f, began := s.finalizer(), s.Now()
	carriers, listed := 0, map[types.UID]bool{}
	if f.Removed {
		all = s.unknown(f)
	}
	for _, t := range s.Catalog().Collected() {
		if !f.Selects(t.Version.GroupResource()) || f.Namespace != "" && !t.Namespaced {
			continue
		}
		n, err := s.lookAt(ctx, f, t, listed)
		all = errors.Join(all, err)
		carriers += n
	}
	s.wakeAll(func(t *track) bool { return thorough || !listed[t.key.uid] })
	if all != nil {
		return false, all
	}
	s.mu.Lock()
	counted := f.Removed && began.Sub(s.removed) >= f.latecomers() && !s.awaited()
	progressed = s.carriers != carriers || s.counted != counted
	s.carriers, s.counted = carriers, counted
	s.mu.Unlock()
	if progressed {
		s.Changed()
	}
	return progressed, nil
}

// unknown says why objects may have the finalizer that nobody can list: their type may
// be one that discovery could not ask about. Of "*" that would be said of every group.
func (s *server) unknown(f served) error {
	for _, rule := range f.Rules {
		for _, group := range rule.Groups {
			if s.Catalog().Failing(group) {
				return fmt.Errorf("which types the group %s has is not known: discovery failed for it", group)
			}
		}
	}
	return nil
}

// awaited reports whether objects wait for the finalizer, also those that it is not for
// any more. Its mutex is held.
func (s *server) awaited() bool {
	for _, t := range s.tracks {
		if s.current.reaches(t.key.namespace) {
			return true
		}
	}
	return false
}

// latecomers is for how long objects may still be created with the finalizer after its
// resource was deleted: API servers take a moment to notice that it is not attached
// any more.
func (f served) latecomers() time.Duration {
	if f.Attach && f.Namespace == "" {
		return lookRemoved - time.Second
	}
	return 0
}

// lookAt counts the objects of a resource that have the finalizer, and notes which of
// them wait for it.
func (s *server) lookAt(ctx context.Context, f served, t catalog.Resource, listed map[types.UID]bool) (carriers int, err error) {
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
			if listed[o.UID] = true; !s.waits(o.UID) {
				s.await(keyOf(o))
			}
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
