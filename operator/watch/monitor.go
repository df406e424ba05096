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

// retry is the wait between attempts to watch a type. It is shorter than the
// reflector's own, so that after a restart of the API server all types are
// watched again within seconds.
func retry() *wait.Backoff {
	return &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 50, Cap: 10 * time.Second}
}

// monitor is the watch of one type by one version.
type monitor struct {
	resource catalog.Resource // as it was when the watch began
	client   metadata.ResourceInterface
	log      logr.Logger
	cancel   context.CancelFunc
	done     chan struct{} // closed when the reflector has ended, and delivers nothing more
	stream   *stream

	started time.Time
	late    bool   // it was said that syncing takes long; only for overdue
	poke    func() // has the types looked for
	broken  func() // tells that the watch has ended, or could not be opened

	mu     sync.Mutex // covers what follows
	status State      // its Resource is as it is now
	level  int        // of the log line that said of the failure
}

// start begins to watch a type.
func (w *Watcher) start(ctx context.Context, resource catalog.Resource) *monitor {
	ctx, cancel := context.WithCancel(ctx)
	now := time.Now()
	m := &monitor{
		resource: resource,
		client:   w.options.Metadata.Resource(resource.Version),
		log:      w.options.Log.WithValues("resource", resource.Version.GroupResource().String(), "version", resource.Version.Version),
		cancel:   cancel,
		done:     make(chan struct{}),
		stream:   &stream{after: w.stall},
		status:   State{Resource: resource, Since: now},
		started:  now,
		poke:     w.poke,
		broken: func() {
			w.options.Sink.Apply(graph.Interrupted{Kind: resource.GroupVersionKind().GroupKind(), At: time.Now()})
		},
	}
	s := &store{sink: w.options.Sink, kind: resource.GroupVersionKind(), monitor: m}
	if tellsOfTypes(resource.Version.GroupResource()) {
		s.poke = w.poke
	}
	reflector := m.reflector(ctx, s, w.options.Metadata)
	go func() {
		defer close(m.done)
		defer cancel()
		// The reflector logs every failed attempt. What is worth saying is said by
		// failed and connected.
		reflector.RunWithContext(logr.NewContext(ctx, logr.Discard()))
		m.stream.over()
	}()
	return m
}

// reflector makes the reflector that fills the store. The client is the one
// that m.client comes from: it knows whether it can stream lists.
func (m *monitor) reflector(ctx context.Context, s *store, client metadata.Interface) *cache.Reflector {
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc:  m.list,
		WatchFuncWithContext: m.watch,
	}, client)
	silent := logr.Discard()
	return cache.NewReflectorWithOptions(lw, &metav1.PartialObjectMetadata{}, s, cache.ReflectorOptions{
		Logger:          &silent,
		Name:            "gleaner",
		TypeDescription: m.resource.Version.String(),
		Clock:           stoppableClock{ctx: ctx},
		Backoff:         retry(),
	})
}

// list lists the type for the reflector, which it does only where a streamed
// list has come to nothing.
func (m *monitor) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	m.stream.over()
	list, err := m.client.List(ctx, options)
	if err != nil {
		m.failed(ctx, err)
		return nil, err
	}
	return list, nil
}

// watch opens a watch for the reflector. It notes failures, since the
// reflector keeps to itself the ones that it gets over on its own.
func (m *monitor) watch(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
	m.stream.over() // a new request comes only after the one before has ended
	streaming := options.SendInitialEvents != nil && *options.SendInitialEvents
	if streaming && m.stream.stalled() {
		return nil, errStalled
	}
	watch, err := m.client.Watch(ctx, options)
	switch {
	case err != nil && streaming && !apierrors.IsTooManyRequests(err) && !isUnreachable(err):
		// The reflector goes on to list; only if that fails, too, is it news.
		return nil, err
	case err != nil:
		m.failed(ctx, err)
		return nil, err
	case streaming:
		m.stream.opened(watch)
	default:
		m.connected()
	}
	return &telling{Interface: watch, stopped: m.broken}, nil
}

// telling is a watch that tells of its end, whoever ended it. The reflector
// stops each watch once no more comes of it, before it opens another.
type telling struct {
	apiwatch.Interface
	stopped func()
}

// Stop implements watch.Interface.
func (t *telling) Stop() {
	t.stopped()
	t.Interface.Stop()
}

// failed notes that the type can't be watched at this moment. It logs that
// only when it is new. An API server that can't be reached fails all types
// alike; there discovery is asked, and says it once.
func (m *monitor) failed(ctx context.Context, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // the watch is being stopped, or has only to begin anew
	}
	m.broken() // what was read meanwhile may have been read before a restore, too
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.status.LastError
	m.status.LastError = err.Error()
	if before != "" {
		return
	}
	m.status.Since = time.Now()
	m.level = 0
	if isUnreachable(err) {
		m.level = 1
		m.poke()
	}
	m.log.V(m.level).Info("Watching a type fails, trying on", "cause", err.Error(), "synced", m.status.Synced)
}

// connected notes that the type is being watched. That it can be listed is not
// enough: where only the watch fails, each attempt begins with a good list.
func (m *monitor) connected() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.status.LastError == "" {
		return
	}
	m.status.LastError, m.status.Since = "", time.Now()
	m.log.V(m.level).Info("Watching a type works again")
	if m.level > 0 {
		m.poke() // what was missed meanwhile need not wait for the interval
	}
}

// synced notes that a full list of the type has been delivered.
func (m *monitor) synced() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.status.Synced {
		return
	}
	m.status.Synced, m.status.Since = true, time.Now()
	m.log.V(1).Info("A type is synced", "after", m.status.Since.Sub(m.started))
}

// overdue says once that the type has not synced for longer than after (G-09).
// A failure has been logged by then, but not every type that hangs fails.
func (m *monitor) overdue(after time.Duration) {
	status := m.state()
	if m.late || status.Synced || time.Since(m.started) < after {
		return
	}
	m.late = true
	m.log.Info("A type has not synced yet", "since", m.started, "cause", status.LastError)
}

// describe notes what a later discovery says of the type.
func (m *monitor) describe(resource catalog.Resource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status.Resource = resource
}

func (m *monitor) state() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status
}
