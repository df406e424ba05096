package run

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/modes"
	"github.com/gleaner-dev/gleaner/internal/cli/serving"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// options are the flags of run.
type options struct {
	version           string // of the program
	kubeconfig        string
	collector         string
	namespace         string
	cacheDir          string
	workers           int
	discoveryInterval time.Duration
	sweepInterval     time.Duration
	ignoreResources   []string
	finalizerNetworks []string
	moduleNetworks    []string
	clusterNetworks   []string
	canaryTimeout     time.Duration
	observeTimeout    time.Duration
	apiQPS            float32
	leaderElect       bool
	metricsAddress    string
	probeAddress      string
	pprofAddress      string
	insecureDebug     bool
	dryRun            bool
	records           int
	transcripts       string
	logFormat         string
	reuseConnections  bool // of HTTP intents; not a flag
	verbosity         int

	companionOptions
	sandboxOptions
	moduleOptions
	signatureOptions
	archiveOptions
}

// defaultOptions returns the defaults of the flags.
func defaultOptions() options {
	return options{
		collector:         modes.Primary,
		workers:           20,
		discoveryInterval: 30 * time.Second,
		sweepInterval:     5 * time.Minute,
		ignoreResources:   []string{"events", "events.events.k8s.io"},
		canaryTimeout:     10 * time.Second,
		observeTimeout:    10 * time.Second,
		leaderElect:       true,
		metricsAddress:    ":8443",
		probeAddress:      ":8081",
		pprofAddress:      "0",
		records:           record.DefaultMaxEntries,
		transcripts:       resource.NewQuantity(record.DefaultMaxTranscriptBytes, resource.BinarySI).String(),
		logFormat:         "json",
		companionOptions:  defaultCompanionOptions(),
		sandboxOptions:    defaultSandboxOptions(),
		moduleOptions:     defaultModuleOptions(),
		archiveOptions:    defaultArchiveOptions(),
	}
}

func (o *options) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig,
		"kubeconfig `file`; by default $KUBECONFIG, the pod's service account, or ~/.kube/config")
	flags.StringVar(&o.collector, "collector", o.collector,
		"`mode`: primary, as the cluster's only garbage collector, or companion, in addition to the built-in one of kube-controller-manager")
	flags.StringVar(&o.namespace, "namespace", o.namespace,
		"the operator's `namespace`, for its lease and canaries; by default the pod's, else kube-system")
	flags.StringVar(&o.cacheDir, "cache-dir", o.cacheDir,
		"`directory` to cache fetched and compiled modules in, used when a registry is unavailable; by default none")
	flags.IntVar(&o.workers, "workers", o.workers, "maximum number of concurrent workers")
	flags.DurationVar(&o.discoveryInterval, "discovery-interval", o.discoveryInterval,
		"interval of API discovery, for types that no CustomResourceDefinition or APIService announced")
	flags.DurationVar(&o.sweepInterval, "sweep-interval", o.sweepInterval,
		"interval of the full resync of objects that may need an action")
	flags.StringSliceVar(&o.ignoreResources, "ignore-resources", o.ignoreResources,
		"resources that are neither watched nor collected, `resource[.group],...`")
	flags.StringSliceVar(&o.finalizerNetworks, "finalizer-networks", o.finalizerNetworks,
		"private `networks`, such as 10.96.0.0/16,..., to which namespaced Finalizers may grant HTTP requests; default none. ClusterFinalizers may grant requests to all")
	flags.StringSliceVar(&o.moduleNetworks, "module-networks", o.moduleNetworks,
		"private `networks`, such as 10.96.0.0/16,..., from which namespaced PolicyModules may be fetched; default none. ClusterPolicyModules may be fetched from all")
	flags.StringSliceVar(&o.clusterNetworks, "cluster-networks", o.clusterNetworks,
		"`networks` of the nodes, pods and Services of this cluster: private even if the addresses look public; detected by default, from Nodes, ServiceCIDRs and the API server's Service")
	flags.DurationVar(&o.canaryTimeout, "canary-timeout", o.canaryTimeout,
		"time to wait for another garbage collector to act on the canary; 0 disables the check")
	flags.DurationVar(&o.observeTimeout, "observe-timeout", o.observeTimeout,
		"maximum time to wait, before dependents are orphaned, for the controller of their owner to report in status.observedGeneration that it has observed the deletion; 0 disables waiting")
	flags.Float32Var(&o.apiQPS, "api-qps", o.apiQPS,
		"maximum number of requests for single objects per second; 0 is unlimited, and leaves flow control to the API server")
	flags.BoolVar(&o.leaderElect, "leader-elect", o.leaderElect,
		"write only while holding the leader election lease, so that other replicas stand by")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", o.metricsAddress,
		"bind `address` of /metrics and /debug/gc, served over HTTPS with authentication; 0 disables them")
	flags.StringVar(&o.probeAddress, "health-probe-bind-address", o.probeAddress,
		"bind `address` of /healthz and /readyz; 0 disables them")
	flags.StringVar(&o.pprofAddress, "pprof-bind-address", o.pprofAddress,
		"bind `address` of Go's pprof endpoints, served over HTTP without authentication; a loopback address, or 0 to disable them")
	flags.BoolVar(&o.insecureDebug, "insecure-debug", o.insecureDebug,
		"serve /metrics and /debug/gc over HTTP without authentication; for loopback addresses only")
	flags.BoolVar(&o.dryRun, "dry-run", o.dryRun, "decide and record only, without writing anything")
	flags.IntVar(&o.records, "records", o.records, "maximum number of decision records to keep; the oldest are evicted")
	flags.StringVar(&o.transcripts, "transcripts", o.transcripts,
		"memory for the requests and verdicts of modules in records, as a `quantity`; the oldest are evicted, and their decisions can't be replayed; 0 keeps none")
	flags.StringVar(&o.logFormat, "log-format", o.logFormat, "log `format`: json or text")
	o.companionOptions.addTo(flags)
	o.sandboxOptions.addTo(flags)
	o.moduleOptions.addTo(flags)
	o.signatureOptions.addTo(flags)
	o.archiveOptions.addTo(flags)
	flags.IntVarP(&o.verbosity, "verbosity", "v", o.verbosity, "log verbosity, from 0 (decisions and errors) to 10")
}

// servesWebhooks reports whether there are webhooks.
func (o *options) servesWebhooks() bool { return o.collector == modes.Companion || o.enableWebhooks }

// validate returns an error for every invalid option, with what to write instead.
// It changes nothing.
func (o *options) validate() error {
	var wrong []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	refuse(o.collector != modes.Companion && o.collector != modes.Primary,
		"--collector=%s: use --collector=primary if the built-in garbage collector of kube-controller-manager is disabled, else --collector=companion", o.collector)
	if o.servesWebhooks() {
		wrong = append(wrong, o.companionOptions.validate())
	}
	if _, err := o.sandboxConfig(); err != nil {
		wrong = append(wrong, err)
	}
	refuse(o.workers < 1 || o.workers > 1000, "--workers=%d: use a number from 1 to 1000", o.workers)
	refuse(o.discoveryInterval < time.Second, "--discovery-interval=%s: use 1s or more", o.discoveryInterval)
	refuse(o.sweepInterval < time.Second, "--sweep-interval=%s: use 1s or more", o.sweepInterval)
	refuse(o.canaryTimeout < 0, "--canary-timeout=%s: use 1s or more, or 0 to disable the check", o.canaryTimeout)
	refuse(o.canaryTimeout > 0 && o.canaryTimeout < time.Second,
		"--canary-timeout=%s: too short to detect another garbage collector; use 1s or more, or 0 to disable the check", o.canaryTimeout)
	refuse(o.observeTimeout < 0 || o.observeTimeout > time.Hour, "--observe-timeout=%s: use a duration up to 1h, or 0 to disable waiting", o.observeTimeout)
	refuse(!(o.apiQPS >= 0 && o.apiQPS <= math.MaxFloat32), "--api-qps=%g: use a positive number, or 0 for no limit", o.apiQPS)
	refuse(o.logFormat != "json" && o.logFormat != "text", "--log-format=%s: use json or text", o.logFormat)
	refuse(o.verbosity < 0 || o.verbosity > 10, "--verbosity=%d: use a number from 0 to 10", o.verbosity)
	refuse(o.insecureDebug && !serving.OnLoopback(o.metricsAddress),
		"--insecure-debug with --metrics-bind-address=%s would show the names of all objects without authentication; "+
			"use --metrics-bind-address=127.0.0.1:8080, or leave --insecure-debug out", o.metricsAddress)
	refuse(!serving.IsAddress(o.metricsAddress), "--metrics-bind-address=%s: use host:port, :port, or 0 to disable it", o.metricsAddress)
	refuse(!serving.IsAddress(o.probeAddress), "--health-probe-bind-address=%s: use host:port, :port, or 0 to disable it", o.probeAddress)
	refuse(!serving.IsAddress(o.pprofAddress) || !serving.OnLoopback(o.pprofAddress),
		"--pprof-bind-address=%s: use a loopback address, such as 127.0.0.1:6060, or 0 to disable it", o.pprofAddress)
	refuse(o.records < 1 || o.records > maxRecords, "--records=%d: use a number from 1 to %d", o.records, maxRecords)
	_, err := o.ignored()
	_, badNetworks := o.networks()
	_, badBounds := o.bounds()
	_, badQuota := o.quota()
	_, badTrust := o.trust()
	return errors.Join(append(wrong, err, badNetworks, badBounds, badQuota, badTrust, o.archiveOptions.validate())...)
}

// ignored parses --ignore-resources.
func (o *options) ignored() (map[schema.GroupResource]struct{}, error) {
	ignored := map[schema.GroupResource]struct{}{}
	var wrong []error
	for _, text := range o.ignoreResources {
		if !kubectl.ResourceName.MatchString(text) {
			wrong = append(wrong, fmt.Errorf("--ignore-resources: invalid resource %q; write its plural name and group, such as events or events.events.k8s.io", text))
		}
		ignored[schema.ParseGroupResource(text)] = struct{}{}
	}
	return ignored, errors.Join(wrong...)
}

// maxRecords is the maximum of --records, about as many as fit into 1 GiB.
const maxRecords = 1_000_000

// bounds parses --records and --transcripts.
func (o *options) bounds() (record.Limits, error) {
	memory, err := resource.ParseQuantity(o.transcripts)
	if err != nil || memory.Sign() < 0 || memory.Cmp(*resource.NewQuantity(math.MaxInt32, resource.BinarySI)) > 0 {
		return record.Limits{}, fmt.Errorf("--transcripts=%s: use a quantity below 2Gi, such as 32Mi, or 0 to keep none", o.transcripts)
	}
	b := record.Limits{MaxEntries: o.records, MaxTranscriptBytes: int(memory.Value())}
	if b.MaxTranscriptBytes == 0 {
		b.MaxTranscriptBytes = -1 // 0 means the default
	}
	return b, nil
}

// networks are the parsed network flags.
type networks struct{ finalizers, modules, cluster []netip.Prefix }

// networks parses --finalizer-networks, --module-networks and --cluster-networks.
func (o *options) networks() (networks, error) {
	var wrong []error
	parse := func(flag string, texts []string) []netip.Prefix {
		var all []netip.Prefix
		for _, text := range texts {
			network, err := netip.ParsePrefix(text)
			if err != nil {
				wrong = append(wrong, fmt.Errorf("--%s: invalid network %q; write a CIDR, such as 10.96.0.0/16", flag, text))
				continue
			}
			all = append(all, network.Masked())
		}
		return all
	}
	n := networks{
		finalizers: parse("finalizer-networks", o.finalizerNetworks),
		modules:    parse("module-networks", o.moduleNetworks),
		cluster:    parse("cluster-networks", o.clusterNetworks),
	}
	return n, errors.Join(wrong...)
}
