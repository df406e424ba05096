package policyset

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/livelist"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/operator/selectors"
	"github.com/gleaner-dev/gleaner/policies"
)

const (
	// settle is how long to wait for more changes of the same kind: kubectl apply of a
	// folder makes many.
	settle = 100 * time.Millisecond

	// maxSettle bounds the wait for more modules to become ready if a build takes long.
	maxSettle = time.Second

	// minRetryRead and maxRetryRead bound the wait after a failure to read resources.
	minRetryRead = time.Second
	maxRetryRead = time.Minute

	// resync is the interval of reading all resources even if nothing is known to have
	// changed.
	resync = 5 * time.Minute

	// settleTimeout bounds Settle.
	settleTimeout = 2 * time.Minute

	// maxFingerprints bounds how many fingerprints are remembered. One that was evicted
	// costs another read.
	maxFingerprints = 1000
)

// Options configure a Publisher. All fields but Archiver are required.
type Options struct {
	Reader   client.Reader // of the custom resources
	Absent   livelist.Absent
	Store    *modulestore.Store
	Rules    Rules
	Archiver Archiver // of the objects that archive policies select; nil: there is no archive
	Log      logr.Logger
}

// Publisher reads the custom resources and publishes snapshots of them. Its methods may
// be called concurrently, except for Run and Settle, of which one may be running.
type Publisher struct {
	options Options
	builder *Builder
	latest  latest.Value[*Snapshot]
	trigger chan struct{} // capacity 1: something has changed

	// Of the goroutine that builds:
	resources Resources // that were read last
	revision  uint64

	mu       sync.Mutex // covers what follows
	observed map[types.UID]string

	// By Fingerprint: those that were current or older than what was, and those that were
	// asked for and are neither yet. See Covers.
	covered, wanted map[string]struct{}
}

// NewPublisher returns a Publisher without a Snapshot. It reads nothing yet.
func NewPublisher(o Options) (*Publisher, error) {
	builder, err := NewBuilder(o.Rules, o.Archiver)
	if err != nil {
		return nil, err
	}
	p := &Publisher{
		options: o, builder: builder, trigger: make(chan struct{}, 1),
		observed: map[types.UID]string{}, covered: map[string]struct{}{}, wanted: map[string]struct{}{},
	}
	p.Refresh()
	return p, nil
}

// Current returns the latest Snapshot; nil until the resources were read once.
func (p *Publisher) Current() *Snapshot {
	s, _ := p.latest.Load()
	return s
}

// Policies returns the policies of the latest Snapshot; nil until there is one.
func (p *Publisher) Policies() *policies.Set {
	if s := p.Current(); s != nil {
		return s.Set
	}
	return nil
}

// Selectors returns the object selectors of the policies of the latest Snapshot; nil until there is
// one.
func (p *Publisher) Selectors() *selectors.Index {
	if s := p.Current(); s != nil {
		return s.Selectors
	}
	return nil
}

// Finalizers returns the finalizers of the latest Snapshot, including those that are not
// ready; known is false until there is a Snapshot.
func (p *Publisher) Finalizers() (list []*policies.Finalizer, known bool) {
	s := p.Current()
	return s.Serving(), s != nil
}

// Changed returns a channel that is closed when a Snapshot is published after this call.
func (p *Publisher) Changed() <-chan struct{} { return p.latest.Changed() }

// Refresh has the resources read again soon.
func (p *Publisher) Refresh() {
	select {
	case p.trigger <- struct{}{}:
	default:
	}
}

// Apply implements watch.Sink: events trigger a read and are not used otherwise.
func (p *Publisher) Apply(events ...graph.Event) {
	for _, e := range events {
		if p.concerns(e) {
			p.Refresh()
		}
	}
}

func (p *Publisher) concerns(e graph.Event) bool {
	group := v1alpha1.GroupVersion.Group
	switch e := e.(type) {
	case graph.Seen:
		return e.Object.Kind.Group == group && p.differs(e.Object)
	case graph.Deleted:
		p.forget(e.Object.UID)
		return e.Object.Kind.Group == group
	case graph.Relisted:
		return e.Kind.Group == group
	case graph.TypeGone:
		return e.Kind.Group == group
	default:
		return false
	}
}

// differs reports whether one of the resources is not as it was observed last, except for
// its status, which Gleaner itself writes. An object without a generation always differs.
func (p *Publisher) differs(o graph.Object) bool {
	now := fmt.Sprint(o.Generation, o.Terminating, o.Finalizers)
	p.mu.Lock()
	defer p.mu.Unlock()
	before, ok := p.observed[o.UID]
	p.observed[o.UID] = now
	return !ok || before != now || o.Generation == 0
}

func (p *Publisher) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.observed, uid)
}

// Covers reports whether the latest Snapshot is the one with a fingerprint, or was read
// after that. If not, the resources are read again, and it is covered once that is done:
// another replica had read it before its fingerprint could be known here.
func (p *Publisher) Covers(fingerprint string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, is := p.covered[fingerprint]; is {
		return true
	}
	if len(p.wanted) >= maxFingerprints {
		clear(p.wanted)
	}
	if _, is := p.wanted[fingerprint]; !is {
		p.wanted[fingerprint] = struct{}{}
		p.Refresh()
	}
	return false
}

func (p *Publisher) wantedNow() map[string]struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.wanted)
}

// cover records that a snapshot covers its own fingerprint and those that were wanted
// before it was read.
func (p *Publisher) cover(fingerprint string, wanted map[string]struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.covered) >= maxFingerprints {
		clear(p.covered)
	}
	p.covered[fingerprint] = struct{}{}
	for other := range wanted {
		p.covered[other] = struct{}{}
		delete(p.wanted, other)
	}
}

// Run publishes snapshots until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	timer, wait := time.NewTimer(0), minRetryRead
	defer timer.Stop()
	var changed <-chan struct{} // a module's state; nil until there is a Snapshot
	for {
		reads := true
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-p.trigger:
			pause(ctx, settle)
		case <-changed:
			pause(ctx, min(max(settle, 4*p.Current().buildTime), maxSettle))
			reads = false
		}
		next := p.options.Store.Changes().Changed()
		if !reads {
			p.rebuild()
			changed = next
			continue
		}
		switch err := p.read(ctx); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			p.options.Log.Error(err, "Could not read policies, keeping the current ones", "known", p.Current() != nil)
			timer.Reset(wait)
			wait = min(2*wait, maxRetryRead)
		default:
			wait, changed = minRetryRead, next
			timer.Reset(resync)
		}
	}
}

// read reads the resources and publishes a Snapshot of them. Until that succeeds, the
// current one stays.
func (p *Publisher) read(ctx context.Context) error {
	wanted := p.wantedNow()
	resources, err := Read(ctx, p.options.Reader, p.options.Absent)
	if err != nil {
		return err
	}
	p.resources = resources
	s := p.build()
	p.revision++
	s.Revision = p.revision
	p.latest.Store(s)
	p.cover(s.Fingerprint, wanted)
	return nil
}

// rebuild publishes a Snapshot of the same resources with the states that their modules
// have now.
func (p *Publisher) rebuild() {
	s := p.build()
	if !sameEvaluation(p.Current(), s) {
		p.revision++
	}
	s.Revision = p.revision
	p.latest.Store(s)
}

func (p *Publisher) build() *Snapshot {
	began := time.Now()
	p.options.Store.SetModules(p.resources.ModuleSources())
	uses := p.options.Store.NewUses()
	defer uses.Commit()
	s := p.builder.Build(p.resources, states{p.options.Store, uses})
	s.buildTime = time.Since(began)
	return s
}

// states implements ModuleStates.
type states struct {
	store *modulestore.Store
	uses  *modulestore.Uses
}

// Module implements ModuleStates.
func (s states) Module(ref modulestore.Ref, digest string) (modulestore.State, bool) {
	return s.store.Get(ref, digest)
}

// Use implements ModuleStates.
func (s states) Use(u modulestore.Use) modulestore.UseState { return s.uses.Get(u) }

// Settle reads the resources once, waits until nothing is loading, and returns the last
// Snapshot. What is still loading after two minutes is not waited for. The store must be
// running.
func (p *Publisher) Settle(ctx context.Context) (*Snapshot, error) {
	waiting, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	changed := p.options.Store.Changes().Changed()
	if err := p.read(ctx); err != nil {
		return nil, err
	}
	// A change during the build may have brought modules within a quota.
	for p.Current().Loading() || isClosed(changed) {
		select {
		case <-changed:
		case <-waiting.Done():
			if ctx.Err() != nil {
				return nil, fmt.Errorf("wait for modules: %w", context.Cause(ctx))
			}
			return p.Current(), nil
		}
		changed = p.options.Store.Changes().Changed()
		p.rebuild()
	}
	return p.Current(), nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
