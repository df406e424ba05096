package node

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/gleaner-dev/gleaner/internal/cli/serving"
)

// options are the flags of node.
type options struct {
	version         string // of the program
	kubeconfig      string
	node            string
	runtimeEndpoint string
	runtimeTimeout  time.Duration
	imageFilesystem string
	metricsAddress  string
	insecureMetrics bool
	probeAddress    string
	logFormat       string
	verbosity       int
}

func defaultOptions() options {
	return options{
		node: nodeName(), runtimeEndpoint: "unix:///run/containerd/containerd.sock", runtimeTimeout: runtimeTimeout,
		metricsAddress: ":8443", probeAddress: ":8081", logFormat: "json",
	}
}

func (o *options) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig,
		"kubeconfig `file`; by default $KUBECONFIG, the pod's service account, or ~/.kube/config")
	flags.StringVar(&o.node, "node-name", o.node, "`name` of the Node that this runs on; by default $"+nodeVariable)
	flags.StringVar(&o.runtimeEndpoint, "runtime-endpoint", o.runtimeEndpoint,
		"`endpoint` of the container runtime, as the kubelet's containerRuntimeEndpoint; CRI-O's is unix:///var/run/crio/crio.sock")
	flags.DurationVar(&o.runtimeTimeout, "runtime-timeout", o.runtimeTimeout, "time limit of each call of the container runtime")
	flags.StringVar(&o.imageFilesystem, "image-filesystem", o.imageFilesystem,
		"`path` on the file system that has the images, such as /var/lib/containerd; by default the one that the container runtime reports")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", o.metricsAddress, "bind `address` of /metrics, served over HTTPS with authentication; 0 disables it")
	flags.BoolVar(&o.insecureMetrics, "insecure-metrics", o.insecureMetrics, "serve /metrics over HTTP without authentication; for loopback addresses only")
	flags.StringVar(&o.probeAddress, "health-probe-bind-address", o.probeAddress, "bind `address` of /healthz; 0 disables it")
	flags.StringVar(&o.logFormat, "log-format", o.logFormat, "log `format`: json or text")
	flags.IntVarP(&o.verbosity, "verbosity", "v", o.verbosity, "log verbosity, from 0 (removals and errors) to 10")
}

// validate returns an error for every invalid option, with what to write instead.
func (o *options) validate() error {
	var wrong []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	if o.node == "" {
		wrong = append(wrong, errNoNode)
	}
	refuse(!strings.HasPrefix(o.runtimeEndpoint, "unix:///"), "--runtime-endpoint=%s: use unix:// and the path of a socket, such as unix:///run/containerd/containerd.sock", o.runtimeEndpoint)
	refuse(o.runtimeTimeout < time.Second || o.runtimeTimeout > time.Hour, "--runtime-timeout=%s: use a duration from 1s to 1h", o.runtimeTimeout)
	refuse(o.imageFilesystem != "" && !filepath.IsAbs(o.imageFilesystem), "--image-filesystem=%s: use an absolute path, such as /var/lib/containerd", o.imageFilesystem)
	refuse(o.logFormat != "json" && o.logFormat != "text", "--log-format=%s: use json or text", o.logFormat)
	refuse(o.verbosity < 0 || o.verbosity > 10, "--verbosity=%d: use a number from 0 to 10", o.verbosity)
	refuse(!serving.IsAddress(o.metricsAddress), "--metrics-bind-address=%s: use host:port, :port, or 0 to disable it", o.metricsAddress)
	refuse(!serving.IsAddress(o.probeAddress), "--health-probe-bind-address=%s: use host:port, :port, or 0 to disable it", o.probeAddress)
	refuse(o.insecureMetrics && !serving.OnLoopback(o.metricsAddress),
		"--insecure-metrics with --metrics-bind-address=%s would show the metrics without authentication; use --metrics-bind-address=127.0.0.1:8080, or leave --insecure-metrics out", o.metricsAddress)
	return errors.Join(wrong...)
}
