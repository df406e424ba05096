package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	runtimedebug "runtime/debug"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"go.uber.org/zap/zapcore"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gleaner-dev/gleaner/operator/certs"
	"github.com/gleaner-dev/gleaner/operator/debug"
	"github.com/gleaner-dev/gleaner/operator/loop"
	"github.com/gleaner-dev/gleaner/operator/modules"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

const (
	syncTimeout    = 30 * time.Second // G-11
	canaryInterval = 10 * time.Minute
	reachTimeout   = 10 * time.Second

	// gcPercent is by how much the heap may grow between collections: the graph
	// is small, and stays, so it is cheaper to go through it twice as often
	// than to hold another of its size in garbage. $GOGC overrides it.
	gcPercent = 50

	// namespaceFile is where a pod finds its own namespace.
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

func runCommand() *cobra.Command {
	o := defaultOptions()
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the garbage collector against a cluster",
		Long: "Run the garbage collector against a cluster.\n\nWith --collector=primary it is the cluster's only one: start " +
			"kube-controller-manager with\n--controllers=*,-garbage-collector-controller,-storage-version-migrator-controller first, and leave --enable-garbage-collector as it is.\n\n" +
			"With --collector=companion that of kube-controller-manager goes on, as it has to on most managed clusters, and Gleaner\n" +
			"does only what policies and finalizers ask for.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return usageError{err}
			}
			config, err := o.config()
			if err != nil {
				return err
			}
			return run(cmd.Context(), o, config, cmd.ErrOrStderr())
		},
	}
	o.addTo(cmd.Flags())
	return cmd
}

// config finds the API server and the identity to work under.
func (o *options) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	switch {
	case err != nil && clientcmd.IsEmptyConfig(err):
		return nil, errors.New("no API server to work with: name a kubeconfig file with --kubeconfig, or run in a pod")
	case err != nil:
		return nil, fmt.Errorf("load kubeconfig: %w; name a good file with --kubeconfig", err)
	}
	return config, nil
}

// reach makes sure that the API server answers, and knows who asks: its version
// it would tell to anybody. One that goes away later is waited for; one that
// was never there is a mistake.
func reach(ctx context.Context, config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.Timeout = reachTimeout
	client, err := kubernetes.NewForConfig(config)
	if err == nil {
		_, err = client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("reach the API server at %s: %w; check --kubeconfig and that the server is up", config.Host, err)
	}
	return nil
}

// run runs the collector until ctx ends.
func run(ctx context.Context, o options, config *rest.Config, logTo io.Writer) error {
	if os.Getenv("GOGC") == "" {
		runtimedebug.SetGCPercent(gcPercent)
	}
	log := o.logger(logTo)
	ctrl.SetLogger(certs.Quiet(log))
	klog.SetLogger(log)
	if err := reach(ctx, config); err != nil {
		return err
	}
	_, mgr, err := o.assemble(config, log)
	if err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	return nil
}

// assemble makes the collector and the manager that is to run it.
func (o *options) assemble(config *rest.Config, log logr.Logger) (*loop.Loop, manager.Manager, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = "gleaner/" + version
	config.Wrap(loop.Count)
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
	sandbox, err := o.sandboxOptions.config()
	if err != nil {
		return nil, nil, err
	}
	warnOfMemory(log, sandbox)
	quota, err := o.quota()
	if err != nil {
		return nil, nil, err
	}
	var hook *webhook
	var asked *modules.Veto
	if o.collector == companion {
		hook = &webhook{options: o}
		asked = hook.veto()
	}
	collector, err := loop.New(loop.Options{
		Version: version, Beside: o.collector == companion, Veto: asked,
		Config: config, Namespace: o.namespace, Workers: o.workers, APIQPS: o.apiQPS,
		Elect:             o.leaderElect && !o.dryRun, // a dry run writes no lease, and takes nobody's place
		DiscoveryInterval: o.discoveryInterval, SweepInterval: o.sweepInterval,
		CanaryTimeout: o.canaryTimeout, CanaryInterval: canaryInterval, SyncTimeout: syncTimeout,
		Ignored: ignored, DryRun: o.dryRun, Evaluator: builtin.Policy{}, CacheDir: o.cacheDir, Sandbox: sandbox, Records: bounds,
		FinalizerNetworks: networks.finalizers, ModuleNetworks: networks.modules, ClusterNetworks: networks.cluster,
		DisableTenantModules: !o.tenantModules, ModuleQuota: quota,
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

func (o *options) manager(config *rest.Config, collector *loop.Loop, log logr.Logger) (manager.Manager, error) {
	if err := metrics.Registry.Register(loop.Calls); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	serving := metricsserver.Options{BindAddress: o.metricsAddress}
	source := collector.Show()
	source.Sight = debug.Everything
	if !o.insecureDebug {
		guard, err := guardOf(config)
		if err != nil {
			return nil, err
		}
		source.Sight = guard.Sight(collector.ResourceOf)
		serving.SecureServing = true
		serving.FilterProvider = func(*rest.Config, *http.Client) (metricsserver.Filter, error) { return guard.Filter, nil }
	}
	serving.ExtraHandlers = debug.Handlers(source)
	mgr, err := ctrl.NewManager(config, manager.Options{
		Logger:                 log,
		Metrics:                serving,
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

func guardOf(config *rest.Config) (*debug.Guard, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // a client that may not get everything is asked about for each object that it is shown
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client for reviews: %w", err)
	}
	return debug.NewGuard(client)
}

func (o *options) logger(to io.Writer) logr.Logger {
	return zap.New(zap.WriteTo(to), zap.Level(zapcore.Level(-o.verbosity)), func(z *zap.Options) {
		z.Development = o.logFormat == "text"
		z.StacktraceLevel = zapcore.DPanicLevel
	})
}

// ownNamespace is the namespace of the pod that this runs in, if it does.
func ownNamespace() string {
	if content, err := os.ReadFile(namespaceFile); err == nil {
		return strings.TrimSpace(string(content))
	}
	return metav1.NamespaceSystem
}
