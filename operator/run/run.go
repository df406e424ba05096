// Package run runs the operator: it makes the components and connects them, and it elects
// the leader. It has no logic of its own.
//
//	watch -> graph -> queue -> gather -> decide -> writer -> act -> record
//
// Data flows in one direction. What a read or a write shows about an object is applied to
// the graph like a watch event; what a write changes is observed by the watch alone.
package run

import (
	"context"
	"fmt"
	"net/http"
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
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gleaner-dev/gleaner/operator/bulkread"
	"github.com/gleaner-dev/gleaner/operator/canary"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/collector"
	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/companion/reviewer"
	"github.com/gleaner-dev/gleaner/operator/finalizers"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/gather"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/graphstore"
	"github.com/gleaner-dev/gleaner/operator/imagereview"
	"github.com/gleaner-dev/gleaner/operator/keystore"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/operator/modulestore/fetch"
	"github.com/gleaner-dev/gleaner/operator/modulestore/loader"
	"github.com/gleaner-dev/gleaner/operator/networks"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/policystatus"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/recorder"
	"github.com/gleaner-dev/gleaner/operator/retainer"
	"github.com/gleaner-dev/gleaner/operator/watch"
	"github.com/gleaner-dev/gleaner/operator/webhook"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/worker"
)

const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = time.Minute // limit for retries of denied writes (defect 3.28)

	eventsPerSecond = 50

	// maxCorrelatedObjects is for how many objects events are correlated, so that those of
	// one don't flood the API server. client-go's default needs 8 MiB.
	maxCorrelatedObjects = 1024

	// eventSource is the source of events that the built-in collector raises as well, so
	// that tools that filter by it continue to work.
	eventSource = "garbage-collector-controller"
)

// Options configure an Operator. None of them has a default here.
type Options struct {
	Config    *rest.Config // has the identity of the operator; its limits are not used
	Namespace string       // of the operator, its canaries and its Lease
	Elect     bool         // work only while holding the Lease
	Version   string       // of the operator, as /debug/gc/status shows it

	// Companion is companion mode: the built-in collector collects, and Gleaner only writes
	// what policies and finalizers request.
	Companion bool

	// Webhook is the address of the operator's webhooks. It is required in companion mode; nil: there are none.
	Webhook *webhook.Endpoint

	// Collector is the user name of the built-in collector. It is required in companion mode, and not used otherwise.
	Collector companion.Collector

	Workers           int
	APIQPS            float32       // of reads and writes of single objects; 0 means no limit
	DiscoveryInterval time.Duration // interval of discovery, for types that no event has announced
	SweepInterval     time.Duration // interval of sweeps, which queue everything that may need work
	CanaryTimeout     time.Duration // for another collector to finalize a canary; 0 means no canaries
	CanaryInterval    time.Duration // interval of canaries
	ObserveTimeout    time.Duration // for the controller of an owner to observe its deletion, before dependents are orphaned; 0 means none
	SyncTimeout       time.Duration // for the initial lists
	Ignored           map[schema.GroupResource]struct{}
	DryRun            bool // decide and record, but write nothing

	Evaluator         policies.Evaluator // decides if no policy does
	FinalizerNetworks []netip.Prefix     // that aren't public, and to which Finalizers may grant requests
	ModuleNetworks    []netip.Prefix     // that aren't public, and from which PolicyModules may be fetched
	ClusterNetworks   []netip.Prefix     // of nodes, Pods and Services; nil means that they are discovered

	DisableTenantModules bool              // ignore PolicyModules
	ModuleQuota          modulestore.Quota // of modules in use
	ModuleTrust          fetch.Trust       // who has to sign modules

	Records record.Limits // of the decisions that are kept for debug endpoints
	Archive *Archive      // nil: deleted objects and older decisions are not kept

	// ReuseConnections keeps the connections of modules' HTTP requests for a moment: see
	// intents.Options.
	ReuseConnections bool

	Sandbox  worker.Config         // how modules are compiled and evaluated
	CacheDir string                // of modules, which it keeps between runs; empty means none
	Metrics  prometheus.Registerer // registers the Operator's metrics
	Log      logr.Logger
}

// Operator is the operator. Create it with New, and add it to a manager with AddTo.
type Operator struct {
	options Options
	log     logr.Logger
	now     func() time.Time
	began   time.Time

	store     *graphstore.Store
	queues    *queues
	gate      gate.Gate
	limits    limits
	watcher   *watch.Watcher
	collector *collector.Collector
	records   *record.Store
	recorder  *recorder.Recorder

	policyClient client.Client
	modules      *loader.Loader
	snapshots    *policyset.Publisher
	observations *policystatus.Observations
	statusWriter *policystatus.Writer
	companion    *companion.Companion // nil in primary mode
	webhooks     *http.ServeMux
	prober       *canary.Prober
	finalizers   *finalizers.Runner
	networks     *networks.Finder
	keys         *keystore.Store
	archiving    archiving
	pausing      pausing
	images       *imagereview.Reviewer
	budgeting    budgeting
	cascading    cascading
	retention    *retainer.Retainer
	subscribers  []manager.RunnableFunc

	warnOfMigrations sync.Once

	client       kubernetes.Interface // for canaries and leases
	eventClient  kubernetes.Interface
	policyEvents eventrecord.EventRecorder // events of Gleaner
	broadcaster  eventrecord.EventBroadcaster
}

// New returns a Operator. It sends no requests yet.
func New(o Options) (*Operator, error) {
	op := &Operator{
		options: o, log: o.Log, webhooks: http.NewServeMux(), now: time.Now, began: time.Now(), limits: newLimits(),
		store: graphstore.New(time.Now), records: record.NewStore(o.Records), observations: policystatus.NewObservations(time.Now),
	}
	op.queues = &queues{store: op.store}
	if err := op.connect(); err != nil {
		return nil, err
	}
	return op, nil
}

// connect makes the clients and the components. Watching, working and recording events have
// a client each, with separate limits, so that none delays another.
func (op *Operator) connect() error {
	watching, working := op.limited(-1), op.limited(op.options.APIQPS)
	watchClient, err := metadata.NewForConfig(metadata.ConfigFor(watching))
	if err != nil {
		return fmt.Errorf("create client for watching: %w", err)
	}
	discoverer, err := discovery.NewDiscoveryClientForConfig(watching)
	if err != nil {
		return fmt.Errorf("create client for discovery: %w", err)
	}
	workClient, err := metadata.NewForConfig(metadata.ConfigFor(working))
	if err != nil {
		return fmt.Errorf("create client for objects: %w", err)
	}
	if op.client, err = kubernetes.NewForConfig(watching); err != nil {
		return fmt.Errorf("create client for leases: %w", err)
	}
	op.networks = networks.New(op.client, op.options.ClusterNetworks, op.now)
	if op.eventClient, err = kubernetes.NewForConfig(op.limited(eventsPerSecond)); err != nil {
		return fmt.Errorf("create client for events: %w", err)
	}
	services, err := aggregator.NewForConfig(watching)
	if err != nil {
		return fmt.Errorf("create client for API services: %w", err)
	}
	reads, err := op.connectReads(working)
	if err != nil {
		return err
	}
	op.connectArchive(reads)
	if err := op.connectPolicies(watching); err != nil {
		return err
	}
	op.connectPauses()
	op.connectRecorder()
	op.connectBudgets(watchClient, reads)
	if err := op.connectCascades(); err != nil {
		return err
	}
	op.connectKeys()
	if err := op.connectImages(watching, reads); err != nil {
		return err
	}
	op.watcher = watch.New(watch.Options{
		Discovery:   discoverer,
		Metadata:    watchClient,
		APIServices: watch.ReadServices(services),
		Ignored:     op.options.Ignored,
		Interval:    op.options.DiscoveryInterval,
		Sink:        sinks{memory{op}, op.archiving.archiver, op.cascading.log, op.store, op.snapshots, op.modules, op.pausing.source, op.budgeting.budgeter, op.images, listener{op}},
		Log:         op.log.WithName("watch"),
		OnChange:    op.typesChanged,
		Selectors:   op.snapshots.Selectors,
	})
	if err := op.connectRetention(watching, workClient, reads); err != nil {
		return err
	}
	op.connectCollector(workClient, watchClient, working, reads)
	return nil
}

// reads are what reads whole objects.
type reads struct {
	reader modulecall.Reader
	bulk   *bulkread.Reader
}

func (op *Operator) connectReads(config *rest.Config) (reads, error) {
	lister, err := bulkread.NewLiveLister(config)
	if err != nil {
		return reads{}, err
	}
	return reads{modulecall.NewLiveReader(config), bulkread.New(lister, op.now)}, nil
}

// connectRecorder makes the recorder, with its events.
func (op *Operator) connectRecorder() {
	op.broadcaster = eventrecord.NewBroadcasterWithCorrelatorOptions(eventrecord.CorrelatorOptions{LRUCacheSize: maxCorrelatedObjects})
	builtin := printable{op.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: eventSource})}
	op.policyEvents = printable{op.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "gleaner"})}
	o := recorder.Options{
		Records: op.records, Observations: op.observations, Log: op.log, Now: op.now,
		Limiter: op.limits.reports, Events: op.policyEvents, BuiltinEvents: builtin, Keep: op.archiving.keep(),
	}
	if op.options.Evaluator != nil {
		o.Default = op.options.Evaluator.Name()
	}
	op.recorder = recorder.New(o)
}

// connectCollector makes the collector, and what depends on it. The barrier lists with the
// client of the watches.
func (op *Operator) connectCollector(client, watching metadata.Interface, config *rest.Config, from reads) {
	executor := op.executor(config)
	op.collector = collector.New(collector.Options{
		Store: op.store, Gate: &op.gate, Recorder: op.recorder, Policies: op.snapshots.Policies, Selectors: op.snapshots.Selectors,
		Default: op.options.Evaluator, Client: client, Watching: watching, Serves: op.watcher.Serves, Reader: from.reader, Intents: executor,
		Bulk: from.bulk, Steps: op.steps(),
		Types:     gather.Sources{Catalog: op.types, Absent: op.watcher.Absent, VerifyEmpty: op.watcher.VerifyEmpty},
		Namespace: op.options.Namespace, StateKeys: op.keys.Keys, StateLimiter: op.limits.states,
		ObserveTimeout: op.options.ObserveTimeout, Companion: op.options.Companion, DryRun: op.options.DryRun, Now: op.now,
	})
	op.connectSubscribers(client, watching)
	op.connectFinalizers(client, from, executor)
	if op.options.Companion {
		op.serveCompanion(reviewer.New(reviewer.Options{
			Collector: op.collector, Store: op.store, Gate: &op.gate, Recorder: op.recorder, Types: op.types, Policies: op.snapshots.Policies,
			Covers: op.snapshots.Covers, Listed: op.listed, Default: op.options.Evaluator, Pauses: op.pausing.source.Current,
			Limited: op.budgeting.budgeter.Limits, Now: op.now, Log: op.log,
		}))
	}
}

// types returns the types that are served, as far as discovery has found.
func (op *Operator) types() *catalog.Catalog { return op.watcher.Catalog() }

// sinks is a Sink that passes events to each of its elements.
type sinks []watch.Sink

// Apply implements watch.Sink.
func (s sinks) Apply(events ...graph.Event) {
	for _, sink := range s {
		sink.Apply(events...)
	}
}

func (op *Operator) limited(qps float32) *rest.Config {
	config := withoutDeprecations(op.options.Config)
	config.QPS, config.Burst = qps, int(qps)
	if qps <= 0 {
		config.QPS, config.Burst = -1, 0 // the API server has flow control
	}
	return config
}

// sendEvents sends Kubernetes events until ctx ends.
func (op *Operator) sendEvents(ctx context.Context) error {
	if op.options.DryRun {
		return nil
	}
	op.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: op.eventClient.CoreV1().Events("")})
	<-ctx.Done()
	op.broadcaster.Shutdown()
	return nil
}
