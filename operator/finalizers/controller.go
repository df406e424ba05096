package finalizers

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// workers is the number of concurrent workers of one finalizer. Each finalizer has its
// own, so that a slow one does not delay the others.
const workers = 8

// A controller runs one finalizer.
type controller struct {
	*Runner
	entry      string
	queue      workqueue.TypedDelayingInterface[key]
	resyncs    chan struct{} // capacity 1: requests a full resync
	cancel     context.CancelFunc
	goroutines sync.WaitGroup

	retryLimiter workqueue.TypedRateLimiter[key] // for writes to objects that are not being deleted

	mu            sync.Mutex // protects the fields below
	active        activeFinalizer
	removedAt     time.Time // when its resource was first seen with a deletionTimestamp
	pending       map[types.UID]*pendingObject
	released      int
	withFinalizer int
	counted       bool
	accountLookup accountLookup

	// namespaceEnding is whether the namespace of the resource, which is being deleted, was
	// so before. Nil: not known, or not asked.
	namespaceEnding *bool
}

// startController starts a controller.
func startController(ctx context.Context, r *Runner, f activeFinalizer) *controller {
	ctx, cancel := context.WithCancel(ctx)
	s := newController(r, f)
	s.cancel = cancel
	for range workers {
		s.goroutines.Go(func() {
			for s.processNext(ctx) {
			}
		})
	}
	s.goroutines.Go(func() { s.resyncLoop(ctx) })
	return s
}

func newController(r *Runner, f activeFinalizer) *controller {
	s := &controller{
		Runner: r, entry: f.Entry, active: f, pending: map[types.UID]*pendingObject{}, resyncs: make(chan struct{}, 1),
		queue:        workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[key]{}),
		retryLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[key](minRetryDelay, maxRetryDelay),
	}
	if f.Deleting {
		s.removedAt = r.Now()
	}
	return s
}

// stop stops the controller and waits for its workers.
func (s *controller) stop() {
	s.cancel()
	s.queue.ShutDown()
	s.goroutines.Wait()
}

// processNext reconciles one object. It returns false after shutdown.
func (s *controller) processNext(ctx context.Context) bool {
	k, shutdown := s.queue.Get()
	if shutdown {
		return false
	}
	defer s.queue.Done(k)
	delay := minRetryDelay // leadership may return before its loss was noticed
	if !s.stopped(ctx) {
		delay = s.reconcile(ctx, k)
	}
	if delay == 0 {
		s.retryLimiter.Forget(k)
		return true
	}
	s.queue.AddAfter(k, delay)
	return true
}

// stopped reports whether work must stop, since another replica may be doing it.
func (s *controller) stopped(ctx context.Context) bool {
	return ctx.Err() != nil || !s.Gate.IsLeading()
}

func (s *controller) enqueue(k key) { s.queue.Add(k) }

// enqueuePending enqueues an object that waits for the finalizer, and adds it to the pending
// ones.
func (s *controller) enqueuePending(o graph.Object) {
	k := keyOf(o)
	s.ensurePending(k)
	s.mu.Lock()
	if t, ok := s.pending[k.uid]; ok {
		t.seen = o.ResourceVersion
	}
	s.mu.Unlock()
	s.queue.Add(k)
}

// requeue requeues an object if it waits for the finalizer.
func (s *controller) requeue(uid types.UID) {
	s.mu.Lock()
	t, ok := s.pending[uid]
	s.mu.Unlock()
	if ok {
		s.queue.Add(t.key)
	}
}

// requeueAll requeues the objects that wait for the finalizer and match.
func (s *controller) requeueAll(matches func(*pendingObject) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.pending {
		if matches(t) {
			s.queue.Add(t.key)
		}
	}
}

func anyObject(*pendingObject) bool { return true }

// forget stops tracking an object that a watch has reported as deleted.
func (s *controller) forget(uid types.UID) {
	s.mu.Lock()
	_, ok := s.pending[uid]
	delete(s.pending, uid)
	s.mu.Unlock()
	if ok {
		s.ProgressChanged()
	}
}

// finalizer returns the version in force.
func (s *controller) finalizer() activeFinalizer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active
}

// update sets the version in force. It reports whether anything has changed; if so,
// all waiting objects are requeued.
func (s *controller) update(f activeFinalizer) bool {
	s.mu.Lock()
	changed := !f.Equivalent(s.active.Finalizer) || f.shared != s.active.shared
	if f.Deleting && !s.active.Deleting {
		s.counted, s.removedAt = false, s.Now()
	}
	s.active = f
	s.mu.Unlock()
	if changed {
		s.requeueAll(anyObject)
	}
	return changed
}

// isPending reports whether an object waits for the finalizer.
func (s *controller) isPending(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.pending[uid]
	return ok
}

// seenUnevaluated returns the resourceVersion of a pending object that was seen last, if no
// evaluation for it has begun yet; otherwise "".
func (s *controller) seenUnevaluated(uid types.UID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.pending[uid]; ok && !t.evaluated {
		return t.seen
	}
	return ""
}

// setEvaluated notes that an evaluation begins.
func (s *controller) setEvaluated(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.pending[uid]; ok {
		t.evaluated = true
	}
}

// ensurePending returns a copy of the pendingObject, and creates it if necessary.
func (s *controller) ensurePending(k key) pendingObject {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.pending[k.uid]; ok {
		return *t
	}
	t := &pendingObject{key: k, since: s.Now()}
	s.pending[k.uid] = t
	s.ProgressChanged()
	return *t
}

// storePending stores a pendingObject, without the fields that each reconciliation reads again.
func (s *controller) storePending(t pendingObject) {
	t.object.Owners, t.object.Finalizers = nil, nil
	s.mu.Lock()
	was := s.pending[t.key.uid]
	if was != nil {
		t.seen, t.evaluated = was.seen, was.evaluated
	}
	if was == nil || was.reason != t.reason {
		t.since = s.Now()
	}
	changed := was == nil || was.reason != t.reason || was.message != t.message || !was.nextRetry.Equal(t.nextRetry)
	s.pending[t.key.uid] = &t
	s.mu.Unlock()
	if changed {
		s.ProgressChanged()
	}
}

// removePending stops tracking an object. If it was the last one and the resource is being
// deleted, the objects are counted again.
func (s *controller) removePending(k key, released bool) {
	s.mu.Lock()
	_, ok := s.pending[k.uid]
	delete(s.pending, k.uid)
	if released {
		s.released++
	}
	last := ok && len(s.pending) == 0 && s.active.Deleting
	s.mu.Unlock()
	if ok || released {
		s.ProgressChanged()
	}
	if last {
		s.requestResync()
	}
}
