// Package loop runs the collector: it is the only place that wires the stages
// to each other and the only one, beside watch, that owns goroutines.
//
//	watch -> graph -> queue -> gather -> decide -> act -> record
//
// Data runs one way. What gathering and acting learn at first hand goes back
// into the graph through the same door as a watch event; what acting changes
// comes back only through the watch.
package loop

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	eventrecord "k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/canary"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/finalize"
	"github.com/gleaner-dev/gleaner/operator/gather"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/operator/keystore"
	"github.com/gleaner-dev/gleaner/operator/modules"
	"github.com/gleaner-dev/gleaner/operator/networks"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/operator/watch"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/source/egress"
	"github.com/gleaner-dev/gleaner/policies/worker"
)

const (
	firstRetry   = 5 * time.Millisecond
	longestRetry = time.Minute // a denied write waits no longer than this (defect 3.28)

	// proofLife is how long a read is believed to have shown that an owner does
	// not exist, before it is asked for again (defect 3.23).
	proofLife = 10 * time.Minute

	eventsPerSecond = 50

	// eventsRemembered is of how many objects it is remembered what events they had, so
	// that those of one don't flood the API server. client-go's default takes 8 MiB.
	eventsRemembered = 1024

	// eventSource is whom the events are from that Kubernetes' own collector
	// would raise too, so that whoever watches for them keeps finding them.
	eventSource = "garbage-collector-controller"
)

// Options say how a Loop is to run. None has a default here.
type Options struct {
	Config    *rest.Config // with the identity to work under; its limits are not used
	Namespace string       // the operator's own: where canaries are let out, and the lease is
	Elect     bool         // work only while holding the lease
	Version   string       // of the operator, for who asks

	// Beside says that another collector does the collecting, and that only what
	// policies and finalizers ask for is written.
	Beside bool

	// Veto says how the API server is to ask about what the other collector deletes.
	// Without it policies on what loses its owner can't be enforced beside another
	// collector. KindOf, Canary and Placed are the Loop's to say.
	Veto *modules.Veto

	Workers           int
	APIQPS            float32       // of reads and writes about single objects; 0: unlimited
	DiscoveryInterval time.Duration // between looks for new types that nothing has announced
	SweepInterval     time.Duration // between looks at everything that may need something
	CanaryTimeout     time.Duration // that another collector is given to show itself; 0: none is looked for
	CanaryInterval    time.Duration // between looks for one
	SyncTimeout       time.Duration // that the first lists are waited for
	Ignored           map[schema.GroupResource]struct{}
	DryRun            bool // decide and record, write nothing

	Evaluator         policies.Evaluator // answers where no policy does
	FinalizerNetworks []netip.Prefix     // that are not public, and to which Finalizers of namespaces may grant requests
	ModuleNetworks    []netip.Prefix     // that are not public, and from which modules of namespaces may be fetched
	ClusterNetworks   []netip.Prefix     // of nodes, pods and Services; nil: they are found

	DisableTenantModules bool          // PolicyModules are not used
	ModuleQuota          modules.Quota // bounds the modules that are used

	Records record.Bounds // of the decisions that are kept to be shown

	Sandbox  worker.Config         // how modules are compiled and evaluated
	CacheDir string                // keeps the policies' modules between runs; empty: nothing is kept
	Metrics  prometheus.Registerer // takes the Loop's metrics
	Log      logr.Logger
}

// Loop is the collector. Create it with New, hand it to a manager with AddTo.
type Loop struct {
	options Options
	log     logr.Logger
	now     func() time.Time
	pause   func(context.Context, time.Duration)
	began   time.Time

	known    *known
	waits    waits
	kept     kept
	parked   parked
	company  company
	gate     gate
	backoff  workqueue.TypedRateLimiter[graph.ID]
	parking  workqueue.TypedRateLimiter[graph.ID] // of those in parked
	watcher  *watch.Watcher
	gatherer *gather.Gatherer
	barrier  *gather.Barrier
	actor    *act.Actor

	limits     limits // none in rehearsals and in tests of the loop
	consultant *consult.Consultant
	working    metadata.Interface
	types      func() *catalog.Catalog
	absent     func(context.Context, schema.GroupKind) (bool, error)
	keeper     *modules.Keeper // nil in rehearsals, and in tests, where there are no policies
	rehearsed  func() *policies.Set
	upTo       func(state string) bool // whether policies of a state are in force, or later ones; nil where none can be
	finalizers *finalize.Runner
	networks   *networks.Finder

	keys      *keystore.Store // nil in rehearsals and in tests of the loop
	stateKeys func() (statekey.Keys, error)

	queueCrowded func(item) // set before any worker begins

	records *record.Store
	noted   func(record.Entry) // is told each decision; nil in operators
	metrics *metrics

	warnOfMigrations sync.Once

	client       kubernetes.Interface // for canaries and leases
	eventClient  kubernetes.Interface
	events       eventrecord.EventRecorder // those that Kubernetes' own collector would raise
	policyEvents eventrecord.EventRecorder // and our own
	broadcaster  eventrecord.EventBroadcaster
}

// New makes a Loop. It talks to no API server yet.
func New(o Options) (*Loop, error) {
	l := unconnected(o, time.Now)
	if err := l.connect(); err != nil {
		return nil, err
	}
	return l, nil
}

// unconnected makes a Loop without what reads or writes.
func unconnected(o Options, now func() time.Time) *Loop {
	l := &Loop{
		options: o,
		log:     o.Log,
		now:     now,
		pause:   wait,
		began:   now(),
		known:   newKnown(now),
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[graph.ID](firstRetry, longestRetry),
		parking: workqueue.NewTypedItemExponentialFailureRateLimiter[graph.ID](firstParking, longestParking),
		records: record.NewStore(o.Records),
		company: company{ask: make(chan struct{}, 1)},
	}
	l.metrics = newMetrics(l)
	return l
}

// connect makes the clients. Watching, working and telling have one each, with
// limits of its own, so that none slows another.
func (l *Loop) connect() error {
	watching, working := l.limited(-1), l.limited(l.options.APIQPS)
	watchClient, err := metadata.NewForConfig(metadata.ConfigFor(watching))
	if err != nil {
		return fmt.Errorf("make client for watching: %w", err)
	}
	discoverer, err := discovery.NewDiscoveryClientForConfig(watching)
	if err != nil {
		return fmt.Errorf("make client for discovery: %w", err)
	}
	workClient, err := metadata.NewForConfig(metadata.ConfigFor(working))
	if err != nil {
		return fmt.Errorf("make client for working: %w", err)
	}
	if l.client, err = kubernetes.NewForConfig(watching); err != nil {
		return fmt.Errorf("make client for leases: %w", err)
	}
	l.networks = networks.New(l.client, l.options.ClusterNetworks, l.now)
	if l.eventClient, err = kubernetes.NewForConfig(l.limited(eventsPerSecond)); err != nil {
		return fmt.Errorf("make client for events: %w", err)
	}
	services, err := aggregator.NewForConfig(watching)
	if err != nil {
		return fmt.Errorf("make client for API services: %w", err)
	}
	if l.options.Veto != nil {
		l.options.Veto.KindOf, l.options.Veto.Canary, l.options.Veto.Placed = l.kindOf, canary.Label, l.askAround
		l.options.Veto.NoCanary = l.options.CanaryTimeout == 0
	}
	if l.keeper, err = modules.New(l.keeperOptions(watching)); err != nil {
		return err
	}
	l.upTo = l.keeper.UpTo
	l.signState()
	l.limits = newLimits()
	l.watcher = watch.New(watch.Options{
		Discovery:   discoverer,
		Metadata:    watchClient,
		APIServices: watch.ReadServices(services),
		Ignored:     l.options.Ignored,
		Interval:    l.options.DiscoveryInterval,
		Sink:        sinks{l.known, l.keeper, listener{l}},
		Log:         l.log.WithName("watch"),
		OnChange:    l.typesChanged,
	})
	reader, executor := consult.NewLive(working), l.executor(working)
	l.wire(workClient, watchClient, gather.Sources{Catalog: l.watcher.Catalog, Absent: l.watcher.Absent, Empty: l.watcher.Empty}, l.watcher.Serves, reader, executor)
	l.wireFinalizers(workClient, reader, executor)
	l.broadcaster = eventrecord.NewBroadcasterWithCorrelatorOptions(eventrecord.CorrelatorOptions{LRUCacheSize: eventsRemembered})
	l.events = printable{l.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: eventSource})}
	l.policyEvents = printable{l.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "gleaner"})}
	return nil
}

// keeperOptions say how policies, finalizers and their modules are read and served.
func (l *Loop) keeperOptions(config *rest.Config) modules.Options {
	return modules.Options{
		Veto: l.options.Veto, Alone: l.company.missing, Only: func() bool { return !l.options.Beside && l.gate.get() == Open },
		Config: config, Namespace: l.options.Namespace, Held: l.heldByPlace, CacheDir: l.options.CacheDir, Sandbox: l.options.Sandbox, Log: l.log.WithName("policies"), Now: l.now,
		Absent:   func(ctx context.Context, gk schema.GroupKind) (bool, error) { return l.watcher.Absent(ctx, gk) },
		Leads:    func() bool { return l.known.leads() && !l.options.DryRun },
		OnChange: l.policiesChanged,
		Egress:   egress.Config{Allow: l.options.ModuleNetworks, Inside: l.networks.Networks, Remedy: "--module-networks lets modules of namespaces come from there"},
		Serves:   l.serves, Networks: l.options.FinalizerNetworks,
		DisableTenantModules: l.options.DisableTenantModules, Quota: l.options.ModuleQuota, CheckGrants: intents.Check, Progress: l.progress,
		Tell: func(about *corev1.ObjectReference, kind, reason, message string) {
			l.policyEvents.Event(about, kind, reason, message)
		},
	}
}

// wire makes the stages that work on single objects, around the graph. The
// barrier's lists are watching by other means, and use its client.
func (l *Loop) wire(client, watching metadata.Interface, types gather.Sources, serves gather.Serves, reader consult.Reader, executor consult.Intents) {
	l.barrier = gather.NewBarrier(l.known, types, watching, l.known.Apply, l.now)
	l.barrier.Holds = l.options.Beside
	l.gatherer = &gather.Gatherer{
		Graph: l.known, Catalog: types.Catalog, Reader: gather.NewReader(client, serves, l.now),
		Barrier: l.barrier, Observe: l.known.Apply, Now: l.now,
	}
	l.gatherer.Reader.Late = l.known.Apply
	l.actor = act.New(client, types.Catalog, l.stateKeys, l.options.DryRun)
	l.consultant = &consult.Consultant{
		Policies: l.policiesInForce, Default: l.options.Evaluator, Catalog: types.Catalog, Reader: reader, Intents: executor, Namespace: l.options.Namespace, Now: l.now,
		ByKind: l.known.ByKind, Twins: l.known.twins, Beside: l.options.Beside, Keys: l.stateKeys,
	}
	l.working, l.types, l.absent = client, types.Catalog, types.Absent
}

// sinks hand events on to each.
type sinks []watch.Sink

// Apply implements watch.Sink.
func (s sinks) Apply(events ...graph.Event) {
	for _, sink := range s {
		sink.Apply(events...)
	}
}

func (l *Loop) limited(qps float32) *rest.Config {
	config := quieter(l.options.Config)
	config.QPS, config.Burst = qps, int(qps)
	if qps <= 0 {
		config.QPS, config.Burst = -1, 0 // flow control is the API server's
	}
	return config
}

// tell sends events for as long as ctx lasts.
func (l *Loop) tell(ctx context.Context) error {
	if l.options.DryRun {
		return nil
	}
	l.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: l.eventClient.CoreV1().Events("")})
	<-ctx.Done()
	l.broadcaster.Shutdown()
	return nil
}
