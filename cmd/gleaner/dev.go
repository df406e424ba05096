package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/crds"
	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/operator/certs"
	"github.com/gleaner-dev/gleaner/operator/loop"
	"github.com/gleaner-dev/gleaner/operator/modules"
)

// withoutCollector are the controllers of a control plane that leaves garbage
// collection to Gleaner.
var withoutCollector = []string{"*", "-garbage-collector-controller", "-storage-version-migrator-controller"}

// localCanaryTimeout is enough for a collector on this machine to show itself. The one that
// a companion runs beside is still starting when the companion does.
const localCanaryTimeout, startingCanaryTimeout = 2 * time.Second, time.Minute

func devCommand() *cobra.Command {
	var beside bool
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a control plane on this machine, with Gleaner as its garbage collector",
		Long: "Run a real control plane on this machine, with Gleaner as its garbage collector, until interrupted.\n\n" +
			"It is built from source the first time, from within a checkout of Gleaner; nothing listens beyond loopback.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return dev(cmd.Context(), modeOf(beside), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addCompanion(cmd.Flags(), &beside)
	return cmd
}

// addCompanion adds the flag that has a stage's collector beside another.
func addCompanion(flags *pflag.FlagSet, beside *bool) {
	flags.BoolVar(beside, companion, false, "leave the collector of kube-controller-manager on, and run Gleaner beside it")
}

func modeOf(beside bool) string {
	if beside {
		return companion
	}
	return primary
}

func dev(ctx context.Context, mode string, out, logTo io.Writer) error {
	var controlPlane devcluster.Options // complete
	if mode == primary {
		controlPlane.Controllers = withoutCollector
	}
	s, err := startStage(ctx, mode, controlPlane, out, (&options{logFormat: "text"}).logger(logTo))
	if err != nil {
		return err
	}
	s.explain(out, programs(filepath.Dir(s.cluster.KubectlPath())))
	err = s.wait(ctx)
	kubectl.Fprintf(out, "\nStopping.\n")
	return s.stop(err)
}

// programs are the folders of kubectl and of this very command, so that what is told
// to be tried can be typed as it is.
func programs(kubectl string) string {
	self, err := os.Executable()
	if err != nil {
		return kubectl
	}
	return kubectl + string(os.PathListSeparator) + filepath.Dir(self)
}

// explain says how to reach the control plane, and what to try.
func (s *stage) explain(out io.Writer, path string) {
	kubectl.Fprintf(out, `
Ready. In another terminal:

  export KUBECONFIG=%[1]s PATH=%[2]s:$PATH %[4]s=http://%[3]s

Three things to try:

  1. Background: its ReplicaSet and Pods go after it.
     kubectl create deployment web --image=nginx --replicas=3
     kubectl delete deployment web

  2. Foreground: it stays until they are gone. Orphan: they stay.
     kubectl create deployment web --image=nginx --replicas=3
     kubectl delete deployment web --cascade=foreground     (or --cascade=orphan)

  3. See what Gleaner knows, and why it did what it did.
     curl -s 'http://%[3]s/debug/gc/graph?format=json'
     curl -s http://%[3]s/debug/gc/records
     gleaner explain deployment/web     (asks $%[4]s; --endpoint names another)

Policies: keep ConfigMaps that lose their owner, and see what it would do before it does.
     kubectl apply -f - <<EOF
     {apiVersion: gleaner.dev/v1alpha1, kind: ClusterGCPolicy, metadata: {name: keep}, spec: {
        resources: [{apiGroups: [""], resources: [configmaps]}], fixed: {collect: {decision: Orphan}}, mode: Monitor}}
     EOF
     kubectl get clustergcpolicies

Ctrl-C ends it and removes everything.

`, s.cluster.Kubeconfig(), path, s.address, endpointVariable)
}

// stage is a control plane with a collector.
type stage struct {
	cluster   *devcluster.Cluster
	collector *loop.Loop
	address   string // of the debug endpoints
	cancel    context.CancelFunc
	done      chan error
}

func startStage(ctx context.Context, mode string, options devcluster.Options, progress io.Writer, log logr.Logger) (*stage, error) {
	ctrl.SetLogger(certs.Quiet(log))
	klog.SetLogger(log)
	began := time.Now()
	options.Progress = progress
	if found, err := devcluster.FindKubectl(ctx); err == nil {
		kubectl.Fprintf(progress, "Using %s.\n", found)
		options.Kubectl = found
	} else {
		kubectl.Fprintf(progress, "Using a kubectl that is built from source: %v.\n", err)
	}
	cluster, err := devcluster.Start(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	kubectl.Fprintf(progress, "The control plane is up after %s.\n", time.Since(began).Round(100*time.Millisecond))
	s := &stage{cluster: cluster, done: make(chan error, 1)}
	if err := define(ctx, cluster.RESTConfig()); err != nil {
		return nil, s.stop(err)
	}
	if err := s.collect(mode, log); err != nil {
		return nil, s.stop(err)
	}
	return s, nil
}

// collect starts the collector.
func (s *stage) collect(mode string, log logr.Logger) error {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	o := defaultOptions()
	o.collector = mode
	if o.webhookAddress, err = freeAddress(); err != nil {
		return err
	}
	o.webhookURL = onLocalhost(o.webhookAddress)
	o.metricsAddress, o.insecureDebug, o.probeAddress = address, true, "0"
	o.canaryTimeout, o.leaderElect = localCanaryTimeout, false
	if mode == companion {
		o.canaryTimeout = startingCanaryTimeout
	}
	o.finalizerNetworks = []string{"127.0.0.0/8", "::1/128"}
	// An identity of its own, since what Gleaner writes itself gets no hold.
	config, err := s.cluster.ConfigFor("gleaner", "system:masters")
	if err != nil {
		return err
	}
	collector, mgr, err := o.assemble(config, log)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background()) // ended by stop, before the control plane is
	s.collector, s.address, s.cancel = collector, address, cancel
	go func() { s.done <- mgr.Start(ctx) }()
	return nil
}

// onLocalhost is the URL of a webhook at an address on loopback, by the name that its
// certificate is made for.
func onLocalhost(address string) string {
	_, port, _ := net.SplitHostPort(address) // it comes from a listener
	return "https://" + net.JoinHostPort("localhost", port) + modules.VetoPath
}

// define creates the types of Gleaner's custom resources.
func define(ctx context.Context, config *rest.Config) error {
	definitions, err := crds.Definitions()
	if err != nil {
		return err
	}
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	for _, d := range definitions {
		if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, d, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("define %s: %w", d.Name, err)
		}
	}
	return nil
}

// wait waits for the end of ctx, or of the collector.
func (s *stage) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.done:
		s.done <- nil
		return fmt.Errorf("the collector ended: %w", err)
	}
}

// stop ends everything and returns the first thing that went wrong.
func (s *stage) stop(err error) error {
	if s.cancel != nil {
		s.cancel()
		if ended := <-s.done; err == nil {
			err = ended
		}
	}
	if stopped := s.cluster.Stop(); err == nil {
		err = stopped
	}
	return err
}

// freeAddress returns an address on loopback that nobody listens on.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
