// Package run implements gleaner run: it assembles the operator from its flags.
package run

import (
	"context"
	"fmt"
	"io"
	stdlog "log"
	"maps"
	"net/http"
	"os"
	runtimedebug "runtime/debug"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gleaner-dev/gleaner/internal/cli/arguments"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/modes"
	"github.com/gleaner-dev/gleaner/internal/cli/serving"
	"github.com/gleaner-dev/gleaner/operator/archive/serve"
	"github.com/gleaner-dev/gleaner/operator/certs"
	"github.com/gleaner-dev/gleaner/operator/debug"
	"github.com/gleaner-dev/gleaner/operator/intents"
	operator "github.com/gleaner-dev/gleaner/operator/run"
	"github.com/gleaner-dev/gleaner/operator/webhook"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

const (
	syncTimeout    = 30 * time.Second // G-11
	canaryInterval = 10 * time.Minute

	// gcPercent is the growth of the heap, in percent, between collections of the Go runtime:
	// the graph is small and long-lived, so scanning it twice as often is cheaper than keeping
	// as much garbage as live memory. $GOGC overrides it.
	gcPercent = 50

	// namespaceFile contains the namespace of the pod.
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// Command returns the command gleaner run.
func Command(version string) *cobra.Command {
	o := defaultOptions()
	o.version = version
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the garbage collector against a cluster",
		Long: "Run the garbage collector against a cluster.\n\nWith --collector=primary, it is the cluster's only garbage collector: first start " +
			"kube-controller-manager with\n--controllers=*,-garbage-collector-controller,-storage-version-migrator-controller, and leave --enable-garbage-collector as it is.\n\n" +
			"With --collector=companion, the built-in garbage collector of kube-controller-manager keeps running, as most managed clusters\n" +
			"require, and Gleaner does only what policies and finalizers ask for.",
		Args: arguments.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return exit.AsUsage(err)
			}
			config, err := serving.Config(o.kubeconfig)
			if err != nil {
				return err
			}
			return run(cmd.Context(), o, config, cmd.ErrOrStderr())
		},
	}
	o.addTo(cmd.Flags())
	return cmd
}

// run runs the collector until ctx ends.
func run(ctx context.Context, o options, config *rest.Config, logTo io.Writer) error {
	if os.Getenv("GOGC") == "" {
		runtimedebug.SetGCPercent(gcPercent)
	}
	stdlog.SetOutput(intents.WithoutServerData(logTo))
	o.reuseConnections = true
	log := serving.Logger(logTo, o.logFormat, o.verbosity)
	ctrl.SetLogger(certs.QuietLogger(log))
	klog.SetLogger(log)
	if err := kubectl.CheckConnection(ctx, config); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create client: %w", err)
	}
	if o.namespace == "" {
		o.namespace = ownNamespace()
	}
	if err := o.checkReplicas(ctx, client, o.namespace); err != nil {
		return err
	}
	_, mgr, err := o.assemble(ctx, config, log)
	if err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	return nil
}

// assemble creates the collector and the manager that runs it.
func (o *options) assemble(ctx context.Context, config *rest.Config, log logr.Logger) (*operator.Operator, manager.Manager, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = "gleaner/" + o.version
	config.Wrap(operator.Count)
	if o.namespace == "" {
		o.namespace = ownNamespace()
	}
	ignored, err := o.ignored()
	if err != nil {
		return nil, nil, err
	}
	networks, err := o.networks()
	if err != nil {
		return nil, nil, err
	}
	bounds, err := o.bounds()
	if err != nil {
		return nil, nil, err
	}
	sandbox, err := o.sandboxConfig()
	if err != nil {
		return nil, nil, err
	}
	warnMemoryLimit(log, sandbox)
	quota, err := o.quota()
	if err != nil {
		return nil, nil, err
	}
	trust, err := o.trust()
	if err != nil {
		return nil, nil, err
	}
	kept, err := o.openArchive(ctx, log)
	if err != nil {
		return nil, nil, err
	}
	hook, endpoint := o.webhooks()
	collector, err := operator.New(operator.Options{
		Version: o.version, Companion: o.collector == modes.Companion, Webhook: endpoint, Collector: o.builtInCollector(),
		Config: config, Namespace: o.namespace, Workers: o.workers, APIQPS: o.apiQPS,
		Elect:             o.leaderElect && !o.dryRun, // a dry run writes no lease, and must not keep another replica from leading
		DiscoveryInterval: o.discoveryInterval, SweepInterval: o.sweepInterval,
		CanaryTimeout: o.canaryTimeout, CanaryInterval: canaryInterval, SyncTimeout: syncTimeout, ObserveTimeout: o.observeTimeout,
		Ignored: ignored, DryRun: o.dryRun, Evaluator: builtin.Policy{}, CacheDir: o.cacheDir, Sandbox: sandbox, Records: bounds, Archive: kept, ReuseConnections: o.reuseConnections,
		FinalizerNetworks: networks.finalizers, ModuleNetworks: networks.modules, ClusterNetworks: networks.cluster,
		DisableTenantModules: !o.tenantModules, ModuleQuota: quota, ModuleTrust: trust,
		Metrics: metrics.Registry, Log: log.WithName("collector"),
	})
	if err != nil {
		return nil, nil, err
	}
	mgr, err := o.manager(config, collector, log)
	if err == nil && hook != nil && !o.dryRun {
		err = hook.addTo(mgr, config, collector, log)
	}
	return collector, mgr, err
}

// webhooks returns the server of webhooks and its endpoint; nil if there are none.
func (o *options) webhooks() (*webhookServer, *webhook.Endpoint) {
	if !o.servesWebhooks() {
		return nil, nil
	}
	hook := &webhookServer{options: o}
	return hook, hook.endpoint()
}

func (o *options) manager(config *rest.Config, collector *operator.Operator, log logr.Logger) (manager.Manager, error) {
	if err := metrics.Registry.Register(operator.Calls); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	metricsAt := metricsserver.Options{BindAddress: o.metricsAddress}
	source := collector.Show()
	source.ReadAccess = debug.AllowAll
	if !o.insecureDebug {
		guard, err := newGuard(config)
		if err != nil {
			return nil, err
		}
		source.ReadAccess = guard.ReadAccess(collector.ResourceOf)
		metricsAt.SecureServing = true
		metricsAt.FilterProvider = func(*rest.Config, *http.Client) (metricsserver.Filter, error) { return guard.Filter, nil }
	}
	metricsAt.ExtraHandlers = debug.Handlers(source)
	if kept := collector.ArchiveReader(); kept != nil {
		maps.Copy(metricsAt.ExtraHandlers, serve.Handlers(serve.Source{Archive: kept, ReadAccess: source.ReadAccess}))
	}
	mgr, err := ctrl.NewManager(config, manager.Options{
		Logger:                 log,
		Metrics:                metricsAt,
		HealthProbeBindAddress: o.probeAddress,
		PprofBindAddress:       o.pprofAddress,
	})
	if err != nil {
		return nil, fmt.Errorf("make manager: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("add health check: %w", err)
	}
	return mgr, collector.AddTo(mgr)
}

func newGuard(config *rest.Config) (*debug.Guard, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // clients without permission to get everything are checked for each object in a response
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client for reviews: %w", err)
	}
	return debug.NewGuard(client)
}

// ownNamespace returns the namespace of the pod, or else kube-system.
func ownNamespace() string {
	if content, err := os.ReadFile(namespaceFile); err == nil {
		return strings.TrimSpace(string(content))
	}
	return metav1.NamespaceSystem
}
