package watch

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// newBackoff returns the backoff between attempts to watch a type. It is shorter than the
// reflector's default, so that after a restart of the API server all types are watched
// again within seconds.
func newBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 50, Cap: 10 * time.Second}
}

// monitor is the watch of one type in one version.
type monitor struct {
	resource catalog.Resource // when the watch started
	client   metadata.ResourceInterface
	log      logr.Logger
	cancel   context.CancelFunc
	done     chan struct{} // closed when the reflector has ended and delivers no more events
	stream   *stream

	started          time.Time
	overdueLogged    bool   // that it has not synced was logged; only for overdue
	triggerDiscovery func() // triggers discovery
	interrupted      func() // reports that the watch has ended, or could not be opened

	mu       sync.Mutex // covers what follows
	status   State      // its Resource is that of the latest discovery
	logLevel int        // verbosity at which the failure was logged
}

// start starts to watch a type. With isNew, nothing is known of its objects.
func (w *Watcher) start(ctx context.Context, resource catalog.Resource, isNew bool) *monitor {
	ctx, cancel := context.WithCancel(ctx)
	now := time.Now()
	m := &monitor{
		resource:         resource,
		client:           w.options.Metadata.Resource(resource.Version),
		log:              w.options.Log.WithValues("resource", resource.Version.GroupResource().String(), "version", resource.Version.Version),
		cancel:           cancel,
		done:             make(chan struct{}),
		stream:           &stream{timeout: w.stallTimeout},
		status:           State{Resource: resource, Since: now},
		started:          now,
		triggerDiscovery: w.triggerDiscovery,
		interrupted: func() {
			w.options.Sink.Apply(graph.Interrupted{Kind: resource.GroupVersionKind().GroupKind(), At: time.Now()})
		},
	}
	s := &store{
		sink: w.options.Sink, kind: resource.GroupVersionKind(), monitor: m, selectors: w.options.Selectors,
		initial: initialList{possible: isNew},
	}
	if definesTypes(resource.Version.GroupResource()) {
		s.triggerDiscovery = w.triggerDiscovery
	}
	reflector := m.reflector(ctx, s, w.options.Metadata)
	go func() {
		defer close(m.done)
		defer cancel()
		// The reflector would log every failed attempt. failed and connected log changes.
		reflector.RunWithContext(logr.NewContext(ctx, logr.Discard()))
		m.stream.end()
	}()
	return m
}

// reflector returns the reflector that fills the store. The client is the one that
// m.client was created from; it determines whether lists can be streamed.
func (m *monitor) reflector(ctx context.Context, s *store, client metadata.Interface) *cache.Reflector {
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: m.list,
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
			return m.watch(ctx, s, options)
		},
	}, client)
	silent := logr.Discard()
	return cache.NewReflectorWithOptions(lw, &metav1.PartialObjectMetadata{}, s, cache.ReflectorOptions{
		Logger:          &silent,
		Name:            "gleaner",
		TypeDescription: m.resource.Version.String(),
		Clock:           stoppableClock{ctx: ctx},
		Backoff:         newBackoff(),
	})
}

// list lists the type for the reflector, which calls it only if a streamed list has failed.
func (m *monitor) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	m.stream.end()
	list, err := m.client.List(ctx, options)
	if err != nil {
		m.failed(ctx, err)
		return nil, err
	}
	return pruned(list), nil
}

// watch opens a watch for the reflector. It records failures, since the reflector does not
// report those that it handles itself.
func (m *monitor) watch(ctx context.Context, s *store, options metav1.ListOptions) (apiwatch.Interface, error) {
	m.stream.end() // the reflector opens a watch only after the previous one has ended
	streaming := options.SendInitialEvents != nil && *options.SendInitialEvents
	if streaming && m.stream.stalled() {
		return nil, errStalled
	}
	watch, err := m.client.Watch(ctx, options)
	switch {
	case err != nil && streaming && !apierrors.IsTooManyRequests(err) && !isUnreachable(err):
		// The reflector falls back to a list. This counts as a failure only if that fails, too.
		return nil, err
	case err != nil:
		m.failed(ctx, err)
		return nil, err
	case streaming:
		m.stream.start(watch)
		watch = s.receive(ctx, watch)
	default:
		m.connected()
	}
	return &notifyingWatch{Interface: watch, onStop: m.interrupted}, nil
}

// notifyingWatch is a watch that calls stopped when it ends for any reason. The reflector stops
// each watch when it delivers no more events, before it opens another.
type notifyingWatch struct {
	apiwatch.Interface
	onStop func()
}

// Stop implements watch.Interface.
func (t *notifyingWatch) Stop() {
	t.onStop()
	t.Interface.Stop()
}

// failed records that the type cannot be watched, and logs the first of successive
// failures. If the API server is unreachable, all types fail; then discovery is triggered,
// which logs the failure once.
func (m *monitor) failed(ctx context.Context, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // the watch is being stopped, or is restarted
	}
	m.interrupted() // the storage may have been restored meanwhile
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.status.LastError
	m.status.LastError = err.Error()
	if before != "" {
		return
	}
	m.status.Since = time.Now()
	m.logLevel = 0
	if isUnreachable(err) {
		m.logLevel = 1
		m.triggerDiscovery()
	}
	m.log.V(m.logLevel).Info("Watch failed, retrying", "cause", err.Error(), "synced", m.status.Synced)
}

// connected records that the type is being watched. A successful list is not enough: if
// only the watch fails, each attempt starts with a successful list.
func (m *monitor) connected() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.status.LastError == "" {
		return
	}
	m.status.LastError, m.status.Since = "", time.Now()
	m.log.V(m.logLevel).Info("Watch recovered")
	if m.logLevel > 0 {
		m.triggerDiscovery() // types may have changed meanwhile
	}
}

// synced records that a full list of the type has been delivered.
func (m *monitor) synced() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.status.Synced {
		return
	}
	m.status.Synced, m.status.Since = true, time.Now()
	m.log.V(1).Info("Watch synced", "after", m.status.Since.Sub(m.started))
}

// logIfOverdue logs once that the type has not synced for longer than after (G-09). A failure
// has been logged by then, but a watch may also hang without one.
func (m *monitor) logIfOverdue(after time.Duration) {
	status := m.state()
	if m.overdueLogged || status.Synced || time.Since(m.started) < after {
		return
	}
	m.overdueLogged = true
	m.log.Info("Watch has not synced yet", "since", m.started, "cause", status.LastError)
}

// setResource updates the type after a later discovery.
func (m *monitor) setResource(resource catalog.Resource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status.Resource = resource
}

func (m *monitor) state() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status
}
