// Package watch watches the objects of all types that can be collected. It runs discovery
// periodically, runs one metadata-only reflector for each type, and converts what they
// deliver to events of the graph. It keeps no objects.
//
// Types are independent. One that cannot be listed does not delay others (defect 3.8), and
// the watch and the goroutines of a type end when it is removed (defect 3.9). Discovery
// runs every Interval, and immediately after a CustomResourceDefinition or an APIService
// has changed (defect 3.14).
//
// Only a deletion that a watch delivers counts as proof that an object does not exist.
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
	"github.com/gleaner-dev/gleaner/operator/selectors"
)

// DefaultInterval is the default interval of periodic discovery.
const DefaultInterval = 30 * time.Second

// Sink receives events. Apply is called concurrently, by the watch of each type. The
// events of one type are in order.
type Sink interface {
	Apply(events ...graph.Event)
}

// Options configure a Watcher.
type Options struct {
	// Discovery must not be cached: its responses count as the current state.
	Discovery discovery.DiscoveryInterface

	Metadata metadata.Interface
	Sink     Sink
	Log      logr.Logger

	// APIServices returns the group versions that kube-apiserver serves itself, and those
	// that are expected; see ReadServices. If it is nil, only discovery counts. If it
	// fails, no group version counts as kube-apiserver's own, and no type as removed.
	APIServices func(context.Context) (Services, error)

	// Ignored are the resources not to watch. Nil means catalog.DefaultIgnored.
	Ignored map[schema.GroupResource]struct{}

	// Selectors returns the selectors to evaluate on the objects, or nil. Nil means that there are
	// none.
	Selectors func() *selectors.Index

	// Interval of periodic discovery. Default DefaultInterval.
	Interval time.Duration

	// OnChange, if set, is called with each catalog that differs from the previous one.
	// Discovery is paused while it runs.
	OnChange func(*catalog.Catalog)
}

// Watcher watches the objects of all types. Its methods may be called
// concurrently, and before Run.
type Watcher struct {
	options      Options
	discovery    discovery.DiscoveryInterfaceWithContext
	catalog      atomic.Pointer[catalog.Catalog]
	failures     atomic.Uint64
	stallTimeout time.Duration // see stallTimeout
	triggers     chan struct{} // capacity 1: types may have changed

	discoveryState, servicesState changeLogger // only for the goroutine of Run

	mu       sync.Mutex // covers monitors; only the goroutine of Run writes them
	monitors map[schema.GroupKind]*monitor

	calls       singleflight.Group
	responsesMu sync.Mutex // covers lists
	responses   map[schema.GroupVersion]discoveryResponse
}

// New returns a Watcher. Discovery starts with Run.
func New(options Options) *Watcher {
	if options.Interval <= 0 {
		options.Interval = DefaultInterval
	}
	if options.Ignored == nil {
		options.Ignored = catalog.DefaultIgnored()
	}
	w := &Watcher{
		options:      options,
		discovery:    discovery.ToDiscoveryInterfaceWithContext(options.Discovery),
		stallTimeout: stallTimeout,
		triggers:     make(chan struct{}, 1),
		monitors:     map[schema.GroupKind]*monitor{},
		responses:    map[schema.GroupVersion]discoveryResponse{},
	}
	w.catalog.Store(catalog.Build(nil, nil, catalog.Settings{}))
	return w
}

// Run watches until ctx ends, and returns when all watches have ended. It must be called
// only once.
func (w *Watcher) Run(ctx context.Context) error {
	defer w.stopAll()
	s := schedule{interval: w.options.Interval}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.triggers:
			s.trigger(time.Now())
		case <-timer.C:
			start := time.Now()
			s.ran(start, w.discover(ctx))
		}
		timer.Reset(time.Until(s.due()))
	}
}

// triggerDiscovery triggers discovery. It never blocks.
func (w *Watcher) triggerDiscovery() {
	select {
	case w.triggers <- struct{}{}:
	default:
	}
}

// Catalog returns the types that the last discovery found. It is never nil.
func (w *Watcher) Catalog() *catalog.Catalog { return w.catalog.Load() }

// Failures returns the number of discoveries that failed, partially or entirely.
func (w *Watcher) Failures() uint64 { return w.failures.Load() }

// State is the state of the watch of a type.
type State struct {
	Resource  catalog.Resource
	Synced    bool   // a full list has been delivered
	LastError string // why the watch is not connected now, or ""
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

// Synced reports whether all types are synced. It is false before the first discovery
// (G-11).
func (w *Watcher) Synced() bool {
	states := w.States()
	return len(states) != 0 && !slices.ContainsFunc(states, func(s State) bool { return !s.Synced })
}
