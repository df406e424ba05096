// Package finalizers runs finalizers that are written as modules. For each object that is
// being deleted and has the finalizer, it evaluates the module, carries out the intents
// that its grants allow, and removes the finalizer when the module returns Done.
//
// Decisions depend only on the live object, its deletionTimestamp and its state
// annotation; nothing else has to survive a restart. A module is evaluated at least once,
// and possibly again for work that it has already done: each request carries its state
// and an idempotency key that does not change.
//
// Any failure keeps the object, unless the finalizer is configured to release it.
package finalizers

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/bulkread"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/operator/lastseen"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/operator/writelimit"
	"github.com/gleaner-dev/gleaner/operator/writer"
	"github.com/gleaner-dev/gleaner/policies"
)

// Options configure a Runner. All fields are required unless noted.
type Options struct {
	// Finalizers returns the finalizers in force; known is false until they have been read.
	Finalizers func() (list []*policies.Finalizer, known bool)

	Catalog func() *catalog.Catalog
	Reader  modulecall.Reader
	Bulk    *bulkread.Reader   // may have objects, which then are not read one by one; optional
	Client  metadata.Interface // writes finalizers and annotations
	Intents modulecall.Intents

	// MayDelete reports whether a finalizer's grants cover an intent.
	MayDelete func(intents.Identity, hostabi.DeleteIntent) bool

	// Lookup returns an object that watches have shown.
	Lookup func(types.UID) (graph.Object, bool)

	// Keys returns the keys that sign and verify state annotations. If it returns an error,
	// no state can be written, and objects that have a state annotation are kept.
	Keys func() (statekey.Keys, error)

	// StateLimiter and Effects limit the rate of state annotation writes and of intents with
	// effects; nil means no limit.
	StateLimiter, EffectLimiter *writelimit.Limiter

	Namespace string // the operator's own; finalizers are never attached in it

	Gate  *gate.Gate    // a replica that is not the leader, or can't rely on its lease, does nothing
	Steps []writer.Step // that each write and each intent with effects passes before the gate; optional

	Record          func(Outcome) // called for each decision
	ProgressChanged func()        // called when any Progress has changed

	Interval time.Duration // between full resyncs of the finalizers' resources
	Now      func() time.Time
	Log      logr.Logger
}

// A Runner runs all finalizers. Its methods may be called concurrently.
type Runner struct {
	Options

	writer   writer.Writer
	lastSeen lastseen.Store // metadata of objects that wait for a finalizer
	triggers chan struct{}  // capacity 1: the configuration has changed

	stopping sync.WaitGroup // controllers that are stopping

	mu          sync.RWMutex // protects the fields below; acquired before a controller's mutex
	controllers map[types.UID]*controller
	byEntry     map[string]*controller
	byKind      map[schema.GroupKind][]*controller // finalizers to add to or remove from live objects of a kind
	superseded  map[types.UID]bool                 // deleted resources whose objects another resource with the same finalizer handles
}

// New returns a Runner without finalizers.
func New(o Options) *Runner {
	return &Runner{
		Options: o, triggers: make(chan struct{}, 1), controllers: map[types.UID]*controller{},
		writer: writer.Writer{Steps: append(slices.Clone(o.Steps), writer.GateStep{Gate: o.Gate, Needs: writer.Leadership})},
	}
}

// Trigger makes the Runner check for changes of the finalizers, the catalog and the
// leadership.
func (r *Runner) Trigger() {
	select {
	case r.triggers <- struct{}{}:
	default:
	}
}

// Retry requeues all objects that wait for a finalizer.
func (r *Runner) Retry() {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, s := range r.controllers {
		s.requeueAll(anyObject)
	}
}

// Apply handles watch events.
func (r *Runner) Apply(events ...graph.Event) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if len(r.controllers) == 0 {
		return
	}
	for _, e := range events {
		switch e := e.(type) {
		case graph.Seen:
			r.observe(e)
		case graph.Deleted:
			for _, s := range r.controllers {
				s.forget(e.Object.UID)
			}
		case graph.Relisted: // objects missing from the list have no event
			r.requeueKind(e.Kind)
		case graph.TypeGone:
			r.requeueKind(e.Kind)
		}
	}
}

func (r *Runner) requeueKind(gk schema.GroupKind) {
	for _, s := range r.controllers {
		s.requeueAll(func(t *pendingObject) bool { return t.key.kind == gk })
	}
}

func (r *Runner) observe(e graph.Seen) {
	o := e.Object
	if !o.Terminating {
		for _, s := range r.byKind[o.Kind.GroupKind()] {
			if f := s.finalizer(); f.appliesTo(o.Namespace) && f.needsWrite(slices.Contains(o.Finalizers, s.entry)) {
				s.enqueue(keyOf(o))
			}
		}
		return
	}
	for _, entry := range o.Finalizers {
		if s, ok := r.byEntry[entry]; ok {
			if e.Metadata != nil && s.finalizer().readsMetadata() {
				r.lastSeen.Put(e.Metadata, r.Now())
			}
			s.enqueuePending(o)
		}
	}
	for _, s := range r.controllers {
		if !slices.Contains(o.Finalizers, s.entry) {
			s.requeue(o.UID) // another client may have removed it
		}
	}
}

// Run runs the finalizers until ctx ends.
func (r *Runner) Run(ctx context.Context) error {
	defer r.stop()
	tick := time.NewTicker(r.Interval)
	defer tick.Stop()
	var types *catalog.Catalog
	led := false
	for {
		all := false
		select {
		case <-ctx.Done():
			return nil
		case <-r.triggers:
		case <-tick.C:
			all = true
		}
		leads, now := r.Gate.IsLeading(), r.Catalog()
		if !leads {
			r.stop()
			led, types = false, nil
			continue
		}
		all = all || !led || types == nil || !types.Equal(now)
		led, types = true, now
		r.sync(ctx, all)
	}
}

// sync starts, updates and stops controllers to match the finalizers in force. New and
// changed finalizers are resynced; with all, every finalizer is.
func (r *Runner) sync(ctx context.Context, all bool) {
	list, known := r.Finalizers()
	if !known {
		return
	}
	active, superseded := resolveDuplicates(list)
	r.mu.Lock()
	more := len(superseded) > len(r.superseded)
	r.superseded = superseded
	present, changed := map[types.UID]bool{}, false
	var resync []*controller
	for _, f := range active {
		present[f.UID] = true
		s, ok := r.controllers[f.UID]
		if ok && s.entry != f.Entry {
			r.stopController(s)
			ok = false
		}
		switch {
		case !ok:
			s = startController(ctx, r, f)
			r.controllers[f.UID] = s
			changed, resync = true, append(resync, s)
		case s.update(f):
			changed, resync = true, append(resync, s)
		case all:
			resync = append(resync, s)
		}
	}
	for uid, s := range r.controllers {
		if !present[uid] {
			r.stopController(s)
			delete(r.controllers, uid)
			changed = true
		}
	}
	r.buildIndex()
	if changed { // a cycle may be broken in any of its finalizers
		for _, s := range r.controllers {
			s.requeueAll(func(t *pendingObject) bool { return t.reason == Circular })
		}
	}
	r.mu.Unlock()
	for _, s := range resync {
		s.requestResync()
	}
	if more {
		r.ProgressChanged()
	}
}

// buildIndex rebuilds the maps that find controllers by the content of an event. Two resources
// with the same finalizer name are both not ready, and either may receive the event.
func (r *Runner) buildIndex() {
	r.byEntry, r.byKind = map[string]*controller{}, map[schema.GroupKind][]*controller{}
	for _, s := range r.controllers {
		r.byEntry[s.entry] = s
		f := s.finalizer()
		if !f.Attaches() && !f.releasesAll() && !f.Withdraw {
			continue
		}
		for _, t := range r.Catalog().Collected() {
			if f.Selects(t.Version.GroupResource()) {
				r.byKind[t.GroupKind()] = append(r.byKind[t.GroupKind()], s)
			}
		}
	}
}

// stopController stops a controller in the background.
func (r *Runner) stopController(s *controller) {
	s.cancel()
	r.stopping.Go(s.stop)
}

// stop stops all controllers and waits for them.
func (r *Runner) stop() {
	r.mu.Lock()
	for _, s := range r.controllers {
		r.stopController(s)
	}
	r.controllers, r.byEntry, r.byKind, r.superseded = map[types.UID]*controller{}, nil, nil, nil
	r.mu.Unlock()
	r.stopping.Wait()
}

// predecessorsOf returns the finalizers that must be removed before the given one.
func (r *Runner) predecessorsOf(entry string) []string {
	r.mu.RLock()
	s, ok := r.byEntry[entry]
	r.mu.RUnlock()
	if !ok {
		return nil
	}
	return s.finalizer().After
}
