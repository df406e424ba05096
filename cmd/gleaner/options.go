package main

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/record"
)

// options are the flags of run.
type options struct {
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
	verbosity         int

	besideOptions
	sandboxOptions
	moduleOptions
}

const (
	primary   = "primary"
	companion = "companion"
)

// defaultOptions returns what run does if nothing is said.
func defaultOptions() options {
	return options{
		collector:         primary,
		workers:           20,
		discoveryInterval: 30 * time.Second,
		sweepInterval:     5 * time.Minute,
		ignoreResources:   []string{"events", "events.events.k8s.io"},
		canaryTimeout:     10 * time.Second,
		leaderElect:       true,
		metricsAddress:    ":8443",
		probeAddress:      ":8081",
		pprofAddress:      "0",
		records:           record.DefaultEntries,
		transcripts:       resource.NewQuantity(record.DefaultTranscripts, resource.BinarySI).String(),
		logFormat:         "json",
		besideOptions:     defaultBesideOptions(),
		sandboxOptions:    defaultSandboxOptions(),
		moduleOptions:     defaultModuleOptions(),
	}
}

func (o *options) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig,
		"kubeconfig `file`; by default $KUBECONFIG, the pod's service account, or ~/.kube/config")
	flags.StringVar(&o.collector, "collector", o.collector,
		"how to run: primary, as the cluster's only garbage collector, or companion, beside that of kube-controller-manager")
	flags.StringVar(&o.namespace, "namespace", o.namespace,
		"the operator's own `namespace`, for its lease and its canaries; by default the pod's, else kube-system")
	flags.StringVar(&o.cacheDir, "cache-dir", o.cacheDir,
		"`folder` that keeps fetched and compiled modules, for the time when a registry is away; by default none")
	flags.IntVar(&o.workers, "workers", o.workers, "objects that are worked on at the same time")
	flags.DurationVar(&o.discoveryInterval, "discovery-interval", o.discoveryInterval,
		"between looks for new types that no CustomResourceDefinition or APIService has announced")
	flags.DurationVar(&o.sweepInterval, "sweep-interval", o.sweepInterval,
		"between looks at everything that may need something, whatever the watches have said")
	flags.StringSliceVar(&o.ignoreResources, "ignore-resources", o.ignoreResources,
		"resources that are neither watched nor collected, as `resource[.group],...`")
	flags.StringSliceVar(&o.finalizerNetworks, "finalizer-networks", o.finalizerNetworks,
		"private `networks`, as 10.96.0.0/16,..., to which Finalizers of namespaces may grant requests, too; ClusterFinalizers may to all")
	flags.StringSliceVar(&o.moduleNetworks, "module-networks", o.moduleNetworks,
		"private `networks`, such as 10.96.0.0/16,..., from which namespaced PolicyModules may be fetched; default none. ClusterPolicyModules may be fetched from all")
	flags.StringSliceVar(&o.clusterNetworks, "cluster-networks", o.clusterNetworks,
		"`networks` of the nodes, pods and Services of this cluster: private even if the addresses look public; detected by default, from Nodes, ServiceCIDRs and the API server's Service")
	flags.DurationVar(&o.canaryTimeout, "canary-timeout", o.canaryTimeout,
		"how long another garbage collector is given to show itself; 0 takes it that there is none")
	flags.Float32Var(&o.apiQPS, "api-qps", o.apiQPS,
		"calls about single objects in a second; 0 is unlimited, and leaves flow control to the API server")
	flags.BoolVar(&o.leaderElect, "leader-elect", o.leaderElect,
		"work only while holding a lease, so that replicas can stand by")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", o.metricsAddress,
		"`address` of /metrics and /debug/gc, by HTTPS with authentication; 0 for none")
	flags.StringVar(&o.probeAddress, "health-probe-bind-address", o.probeAddress,
		"`address` of /healthz and /readyz; 0 for none")
	flags.StringVar(&o.pprofAddress, "pprof-bind-address", o.pprofAddress,
		"`address` of Go's profiles, by plain HTTP to anybody; a loopback address, or 0 for none")
	flags.BoolVar(&o.insecureDebug, "insecure-debug", o.insecureDebug,
		"serve /metrics and /debug/gc by plain HTTP to anybody; for loopback addresses")
	flags.BoolVar(&o.dryRun, "dry-run", o.dryRun, "decide and record, and write nothing")
	flags.IntVar(&o.records, "records", o.records, "decisions that are kept, to be shown and explained; the oldest make room")
	flags.StringVar(&o.transcripts, "transcripts", o.transcripts,
		"memory for what modules were asked and answered, as a `quantity`; the oldest make room, and their decisions can't be replayed; 0 for none")
	flags.StringVar(&o.logFormat, "log-format", o.logFormat, "json or text")
	o.besideOptions.addTo(flags)
	o.sandboxOptions.addTo(flags)
	o.moduleOptions.addTo(flags)
	flags.IntVarP(&o.verbosity, "verbosity", "v", o.verbosity, "of the log: 0 for decisions and what goes wrong, higher for more")
}

// validate returns everything that is wrong with the options, each with what
// to write instead. It changes nothing.
func (o *options) validate() error {
	var wrong []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	refuse(o.collector != companion && o.collector != primary,
		"--collector=%s: use --collector=primary where the collector of kube-controller-manager is switched off, or --collector=companion", o.collector)
	if o.collector == companion {
		wrong = append(wrong, o.besideOptions.validate())
	}
	if _, err := o.sandboxOptions.config(); err != nil {
		wrong = append(wrong, err)
	}
	refuse(o.workers < 1 || o.workers > 1000, "--workers=%d: use a number from 1 to 1000", o.workers)
	refuse(o.discoveryInterval < time.Second, "--discovery-interval=%s: use 1s or more", o.discoveryInterval)
	refuse(o.sweepInterval < time.Second, "--sweep-interval=%s: use 1s or more", o.sweepInterval)
	refuse(o.canaryTimeout < 0, "--canary-timeout=%s: use 0 for no canary, or 1s or more", o.canaryTimeout)
	refuse(o.canaryTimeout > 0 && o.canaryTimeout < time.Second,
		"--canary-timeout=%s: another collector would not be given the time to show itself; use 1s or more, or 0 for no canary", o.canaryTimeout)
	refuse(!(o.apiQPS >= 0 && o.apiQPS <= math.MaxFloat32), "--api-qps=%g: use 0 for no limit, or a number above it", o.apiQPS)
	refuse(o.logFormat != "json" && o.logFormat != "text", "--log-format=%s: use json or text", o.logFormat)
	refuse(o.verbosity < 0 || o.verbosity > 10, "--verbosity=%d: use a number from 0 to 10", o.verbosity)
	refuse(o.insecureDebug && !onLoopback(o.metricsAddress),
		"--insecure-debug with --metrics-bind-address=%s would show every object's name to whoever can reach it; "+
			"use --metrics-bind-address=127.0.0.1:8080, or leave --insecure-debug out", o.metricsAddress)
	refuse(!isAddress(o.metricsAddress), "--metrics-bind-address=%s: use host:port, :port, or 0 for none", o.metricsAddress)
	refuse(!isAddress(o.probeAddress), "--health-probe-bind-address=%s: use host:port, :port, or 0 for none", o.probeAddress)
	refuse(!isAddress(o.pprofAddress) || !onLoopback(o.pprofAddress),
		"--pprof-bind-address=%s: use a loopback address, as in 127.0.0.1:6060, or 0 for none", o.pprofAddress)
	refuse(o.records < 1 || o.records > mostKept, "--records=%d: use a number from 1 to %d", o.records, mostKept)
	_, err := o.ignored()
	_, badNetworks := o.networks()
	_, badBounds := o.bounds()
	_, badQuota := o.quota()
	return errors.Join(append(wrong, err, badNetworks, badBounds, badQuota)...)
}

func isAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return text == "0" || err == nil
}

func onLoopback(address string) bool {
	if address == "0" {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

var resourceName = regexp.MustCompile(`^[a-z][a-z0-9]*(\.[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`)

// ignored parses --ignore-resources.
func (o *options) ignored() (map[schema.GroupResource]struct{}, error) {
	ignored := map[schema.GroupResource]struct{}{}
	var wrong []error
	for _, text := range o.ignoreResources {
		if !resourceName.MatchString(text) {
			wrong = append(wrong, fmt.Errorf("--ignore-resources: %q is no resource; write its plural name and group, as in events or events.events.k8s.io", text))
		}
		ignored[schema.ParseGroupResource(text)] = struct{}{}
	}
	return ignored, errors.Join(wrong...)
}

// mostKept are about as many as fit into a GiB.
const mostKept = 1_000_000

// bounds parses --records and --transcripts.
func (o *options) bounds() (record.Bounds, error) {
	memory, err := resource.ParseQuantity(o.transcripts)
	if err != nil || memory.Sign() < 0 || memory.Cmp(*resource.NewQuantity(math.MaxInt32, resource.BinarySI)) > 0 {
		return record.Bounds{}, fmt.Errorf("--transcripts=%s: use a quantity below 2Gi, as in 32Mi, or 0 for none", o.transcripts)
	}
	b := record.Bounds{Entries: o.records, Transcripts: int(memory.Value())}
	if b.Transcripts == 0 {
		b.Transcripts = -1 // 0 would be the default
	}
	return b, nil
}

// networks are what the flags about networks say.
type networks struct{ finalizers, modules, cluster []netip.Prefix }

// networks parses --finalizer-networks, --module-networks and --cluster-networks.
func (o *options) networks() (networks, error) {
	var wrong []error
	parse := func(flag string, texts []string) []netip.Prefix {
		var all []netip.Prefix
		for _, text := range texts {
			network, err := netip.ParsePrefix(text)
			if err != nil {
				wrong = append(wrong, fmt.Errorf("--%s: %q is no network; write an address and a length, as in 10.96.0.0/16", flag, text))
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
