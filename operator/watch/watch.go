// Package watch tells what happens to the objects of all types that can be
// collected: it keeps asking discovery which types there are, runs one
// metadata-only reflector for each, and turns what they deliver into the
// graph's events. It keeps no objects.
//
// Every type stands on its own. One that can't be listed delays no other
// (defect 3.8), and one that is gone takes its watch and its goroutines with
// it (defect 3.9). Types are looked for every Interval, and at once when a
// custom resource definition or an API service was seen to change (defect
// 3.14).
//
// Nothing here is ever taken for proof that an object does not exist, but for
// the one thing that is: a deletion delivered by a watch.
package watch

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// DefaultInterval is how often types are looked for without a reason.
const DefaultInterval = 30 * time.Second

// Sink takes in events. Apply is called concurrently, by each type's watch;
// the events of one type come in the order in which they happened.
type Sink interface {
	Apply(events ...graph.Event)
}

// Options are what a Watcher is made of.
type Options struct {
	// Discovery must not cache: what it says is taken for what is served now.
	Discovery discovery.DiscoveryInterface

	Metadata metadata.Interface
	Sink     Sink
	Log      logr.Logger

	// APIServices tells which group versions kube-apiserver serves itself, and which
	// there have to be; see ReadServices. Without it discovery's word counts alone. When
	// it fails, none is taken to be kube-apiserver's own, and no type to be gone.
	APIServices func(context.Context) (Services, error)

	// Ignored are the resources not to watch. Nil means catalog.DefaultIgnored.
	Ignored map[schema.GroupResource]struct{}

	// Interval is how often to look for types; 0 means DefaultInterval.
	Interval time.Duration

	// OnChange, if set, is called with each catalog that differs from the one
	// before. Types are not looked for while it runs.
	OnChange func(*catalog.Catalog)
}

// Watcher watches the objects of all types. Its methods may be called
// concurrently, and before Run.
type Watcher struct {
	options   Options
	discovery discovery.DiscoveryInterfaceWithContext
	catalog   atomic.Pointer[catalog.Catalog]
	failures  atomic.Uint64
	stall     time.Duration // see stallAfter
	pokes     chan struct{} // capacity 1: the types may have changed

	discoveryNews, localNews news // only for Run's goroutine

	mu       sync.Mutex // covers monitors; only Run's goroutine writes them
	monitors map[schema.GroupKind]*monitor

	calls  singleflight.Group
	listMu sync.Mutex // covers lists
	lists  map[schema.GroupVersion]listed
}

// New returns a Watcher that has not looked for types yet.
func New(options Options) *Watcher {
	if options.Interval <= 0 {
		options.Interval = DefaultInterval
	}
	if options.Ignored == nil {
		options.Ignored = catalog.DefaultIgnored()
	}
	w := &Watcher{
		options:   options,
		discovery: discovery.ToDiscoveryInterfaceWithContext(options.Discovery),
		stall:     stallAfter,
		pokes:     make(chan struct{}, 1),
		monitors:  map[schema.GroupKind]*monitor{},
		lists:     map[schema.GroupVersion]listed{},
	}
	w.catalog.Store(catalog.Build(nil, nil, catalog.Settings{}))
	return w
}

// Run watches until ctx ends, and returns when all that it started has ended.
// It can be called once.
func (w *Watcher) Run(ctx context.Context) error {
	defer w.stopAll()
	s := schedule{interval: w.options.Interval}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.pokes:
			s.poke(time.Now())
		case <-timer.C:
			began := time.Now()
			s.ran(began, w.discover(ctx))
		}
		timer.Reset(time.Until(s.due()))
	}
}

// poke has the types looked for soon. It never blocks.
func (w *Watcher) poke() {
	select {
	case w.pokes <- struct{}{}:
	default:
	}
}

// Catalog returns the types that the last discovery found. It is never nil.
func (w *Watcher) Catalog() *catalog.Catalog { return w.catalog.Load() }

// Failures returns how many discoveries failed, in part or as a whole.
func (w *Watcher) Failures() uint64 { return w.failures.Load() }

// State is how the watch of a type is doing.
type State struct {
	Resource  catalog.Resource
	Synced    bool   // all objects of the type have been delivered once
	LastError string // why it isn't connected at this moment, or ""
	Since     time.Time
}

// States returns the state of every type that is watched, sorted by group and
// resource.
func (w *Watcher) States() []State {
	w.mu.Lock()
	states := make([]State, 0, len(w.monitors))
	for _, m := range w.monitors {
		states = append(states, m.state())
	}
	w.mu.Unlock()
	slices.SortFunc(states, func(a, b State) int { return a.Resource.Compare(b.Resource) })
	return states
}

// Unsynced returns the states of the types that are not synced yet.
func (w *Watcher) Unsynced() []State {
	return slices.DeleteFunc(w.States(), func(s State) bool { return s.Synced })
}

// Synced reports whether all types are. As long as no type was found, it is
// false (G-11).
func (w *Watcher) Synced() bool {
	states := w.States()
	return len(states) != 0 && !slices.ContainsFunc(states, func(s State) bool { return !s.Synced })
}
