package differential

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// cascadeTimeout is how long a completed cascade may take to be reported: many are at the same time, and their
// events are limited per second.
const cascadeTimeout = time.Minute

// cascadeRecorder knows on its own, from watches, which cascades have completed on Gleaner's side, and counts the
// events about them.
type cascadeRecorder struct {
	watches []watch.Interface
	wait    sync.WaitGroup

	mu         sync.Mutex                               // covers the fields below
	exists     map[types.UID]*unstructured.Unstructured // as last seen
	dependents map[types.UID]map[types.UID]struct{}     // all that ever had a reference to an object
	events     map[types.UID]int                        // CascadeCompleted, by root
	completed  map[types.UID]string                     // names of the roots of completed cascades
}

func watchCascades(ctx context.Context, s *side) (*cascadeRecorder, error) {
	c := &cascadeRecorder{
		exists: map[types.UID]*unstructured.Unstructured{}, dependents: map[types.UID]map[types.UID]struct{}{},
		events: map[types.UID]int{}, completed: map[types.UID]string{},
	}
	var failures []error
	for _, k := range kinds {
		failures = append(failures, follow(ctx, c, s.objects.Resource(k.resource), ""))
	}
	failures = append(failures, follow(ctx, c, s.kube.CoreV1().Events(""), "reason=CascadeCompleted"))
	if err := errors.Join(failures...); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// lists are the objects of one type.
type lists[L metav1.ListInterface] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// follow records the events of a watch from now on. The API server ends each request to watch after half an hour or later; the
// next one continues.
func follow[L metav1.ListInterface](ctx context.Context, c *cascadeRecorder, of lists[L], selector string) error {
	list, err := of.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	w, err := toolswatch.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return of.Watch(ctx, o)
		},
	})
	if err != nil {
		return err
	}
	c.watches = append(c.watches, w)
	c.wait.Go(func() {
		for e := range w.ResultChan() {
			c.record(e)
		}
	})
	return nil
}

func (c *cascadeRecorder) stop() {
	for _, w := range c.watches {
		w.Stop()
	}
	c.wait.Wait()
}

func (c *cascadeRecorder) record(e watch.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch o := e.Object.(type) {
	case *corev1.Event:
		if e.Type == watch.Added {
			c.events[o.InvolvedObject.UID]++
		}
	case *unstructured.Unstructured:
		if e.Type == watch.Deleted {
			delete(c.exists, o.GetUID())
			return
		}
		c.exists[o.GetUID()] = o
		for _, ref := range o.GetOwnerReferences() {
			if c.dependents[ref.UID] == nil {
				c.dependents[ref.UID] = map[types.UID]struct{}{}
			}
			c.dependents[ref.UID][o.GetUID()] = struct{}{}
		}
	}
}

// beginsCascade reports whether the deletion of an object begins a cascade: it has dependents, and belongs to no other
// cascade.
func (c *cascadeRecorder) beginsCascade(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, exists := c.exists[uid]
	if !exists || o.GetDeletionTimestamp() != nil {
		return false
	}
	for _, ref := range o.GetOwnerReferences() {
		if owner, exists := c.exists[ref.UID]; !exists || owner.GetDeletionTimestamp() != nil {
			return false
		}
	}
	for dependent := range c.dependents[uid] {
		if c.refersTo(dependent, uid) {
			return true
		}
	}
	return false
}

// refersTo is for callers that hold mu.
func (c *cascadeRecorder) refersTo(dependent, owner types.UID) bool {
	o, exists := c.exists[dependent]
	if !exists {
		return false
	}
	for _, ref := range o.GetOwnerReferences() {
		if ref.UID == owner {
			return true
		}
	}
	return false
}

// expect adds the roots whose cascades have completed: no dependents are left of the root, or of any other object that was
// deleted in the cascade.
func (c *cascadeRecorder) expect(roots map[types.UID]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for root, name := range roots {
		if c.isComplete(root) {
			c.completed[root] = name
		}
	}
}

// isComplete is for callers that hold mu.
func (c *cascadeRecorder) isComplete(root types.UID) bool {
	members := []types.UID{root}
	known := map[types.UID]bool{root: true}
	for i := 0; i < len(members); i++ {
		if o, exists := c.exists[members[i]]; exists {
			if o.GetDeletionTimestamp() != nil {
				return false
			}
			continue // it was kept
		}
		for dependent := range c.dependents[members[i]] {
			if c.refersTo(dependent, members[i]) {
				return false
			}
			if !known[dependent] {
				known[dependent] = true
				members = append(members, dependent)
			}
		}
	}
	_, exists := c.exists[root]
	return !exists
}

// verify waits until each completed cascade was reported, and verifies that none was twice.
func (c *cascadeRecorder) verify(t *testing.T) {
	t.Helper()
	missing := func() (names []string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for root, name := range c.completed {
			if c.events[root] == 0 {
				names = append(names, fmt.Sprintf("%s (%s)", name, root))
			}
		}
		return names
	}
	devtest.Eventually(t, cascadeTimeout, func() error {
		if names := missing(); len(names) != 0 {
			return fmt.Errorf("%d completed cascades have no event: %v", len(names), names)
		}
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	for root, n := range c.events {
		if n != 1 {
			t.Errorf("%d events about the cascade of %s", n, root)
		}
	}
	t.Logf("%d cascades of scripts have completed, and have one event each", len(c.completed))
}

// count returns the number of completed cascades.
func (c *cascadeRecorder) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.completed)
}

// Each cascade that a script begins is reported once, when it has completed. The scripts run with Gleaner alone.
func TestRandomScripts_EachCascadeIsReportedOnce(t *testing.T) {
	if *companionMode {
		t.Skip("without a policy, nothing is written in companion mode")
	}
	_, own := bothSides(t)
	t.Run("scripts", func(t *testing.T) {
		var seeds atomic.Int64
		for worker := range 2 * parallelScripts { // one side waits more than two
			t.Run(fmt.Sprintf("worker %d", worker), func(t *testing.T) {
				t.Parallel()
				for own.cascades.count() < *cascades {
					seed := *seed + seeds.Add(1)
					t.Run(name(seed), func(t *testing.T) { runAlone(t, own, generate(seed)) })
				}
			})
		}
	})
	own.cascades.verify(t)
}

// runAlone runs a script on one side.
func runAlone(t *testing.T, s *side, steps script) {
	t.Helper()
	g, roots := newExecution(t, s), map[types.UID]string{}
	for _, st := range steps {
		if st.op == "delete" {
			g.settle()
			if uid := g.uids[st.object]; s.cascades.beginsCascade(uid) {
				roots[uid] = st.object + " of " + g.prefix
			}
		}
		g.execute(st)
	}
	g.settle()
	s.cascades.expect(roots)
}

// settle waits until the side is idle.
func (g *execution) settle() {
	var last state
	for still := 0; still < idleMarkers; {
		g.collectMarker(g.t, g.scriptNamespaces)
		now := g.currentState()
		if still++; !reflect.DeepEqual(now, last) {
			still = 0
		}
		last = now
	}
}
